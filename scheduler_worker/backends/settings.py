"""Settings of the shared state's engine."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from scheduler_worker.options import Opt

_DIRECTORY = "/var/lib/scheduler_worker"
_FILE = "policies.sqlite"
"""What earlier releases made where no database was configured."""
PREFIX = "scheduler_worker"


class StateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[state]`` and the timeouts of ``[cluster_lock]`` that the engine enforces, in seconds."""

    url: Annotated[str, Opt(secret=True)] = "memory://"
    """The store of all workers' hosts, locks and reservations: memory:// for a single process, or
    redis://[user:password@]host:port/db, rediss://... for TLS, or
    redis+sentinel://host:port,host:port/service/db, or redis+cluster://host:port,host:port.
    Sentinels with an account: ?sentinel_username=user&sentinel_password=password."""
    prefix: Annotated[str, Opt(regex=r"^[A-Za-z0-9_.-]{1,64}$")] = PREFIX
    """Prefix of every key. Workers with different prefixes share nothing."""
    wait_replicas: Annotated[int, Opt(min=0, max=10)] = 0
    """Redis replicas that must have a reservation before the request is answered. A failover, also
    a planned one, may lose answered reservations unless this and min-replicas-to-write at every
    server are the number of replicas. Requests fail with StateUnavailable while fewer replicas than
    this keep up."""
    hold_timeout_s: float
    """That of a lease, which ``[cluster_lock]`` sets for placement."""
    offer_timeout_s: Annotated[float, Opt(group="cluster_lock", min=0.05, max=10)] = 0.5
    """Seconds a waiting worker has to take the lock when it is offered. A dead waiter delays the
    others by this long."""


class PolicyStoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[policy_store]``; times in seconds."""

    connection: Annotated[str, Opt(secret=True)] = ""
    """The database that archives the policies that administrators make, and the audit. It has a
    copy of what is in the shared state, and all history. Empty: there is none, and history goes
    back 30 days. postgresql://user:password@host/database or mariadb://user:password@host/database,
    which need the extras of the same names. `scheduler-worker-manage db upgrade` makes the tables.
    For programs of one host, sqlite:////path/of/a/file, which gets its tables by itself. The file
    policies.sqlite of earlier releases, in the state directory, is used where it exists. Workers do
    not read it while they decide."""
    pool_size: Annotated[int, Opt(min=1, max=100)] = 5
    """Connections of one process at most; further uses wait for one to be free."""
    pool_timeout_s: Annotated[float, Opt(min=0.1, max=600)] = 10.0
    """Seconds to wait for a free connection of the pool."""
    connect_timeout_s: Annotated[float, Opt(min=1, max=600)] = 5.0
    """Seconds to wait for a new connection to the database."""
    lock_timeout_s: Annotated[float, Opt(min=0.1, max=600)] = 5.0
    """Seconds that an edit waits for others that are being written."""
    statement_timeout_s: Annotated[float, Opt(min=1, max=3600)] = 30.0
    """Seconds that a statement may take, migrations included. Not for SQLite."""
    audit_retention_days: Annotated[float, Opt(min=0, max=36_500)] = 0.0
    """Days after which an entry of the audit is deleted from the archive; 0: never."""


def earlier_file() -> str:
    """The URL of the file that earlier releases made by default; empty where it is not usable."""
    path = Path(os.environ.get("STATE_DIRECTORY", _DIRECTORY)) / _FILE
    return f"sqlite:///{path}" if os.access(path, os.R_OK | os.W_OK) else ""
