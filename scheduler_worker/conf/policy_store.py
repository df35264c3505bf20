"""``[policy_store]``: the SQL database with the policies that administrators make."""

from __future__ import annotations

import os
from typing import Any

from oslo_config import cfg

from scheduler_worker.backends.settings import PolicyStoreSettings

GROUP = "policy_store"
_DIRECTORY = "/var/lib/scheduler_worker"
_FILE = "policies.sqlite"

OPTS = [
    cfg.StrOpt(
        "connection",
        default=f"sqlite:///{os.environ.get('STATE_DIRECTORY', _DIRECTORY)}/{_FILE}",
        sample_default=f"sqlite:///{_DIRECTORY}/{_FILE}",
        secret=True,
        help="Where the policies are kept that administrators make: the path of a SQLite file "
        "(by default in the state directory that systemd gives the service), for programs of one "
        "host; or postgresql://user:password@host/database or "
        "mariadb://user:password@host/database, which need the extras of the same names. "
        "`scheduler-worker-manage db upgrade` makes the tables; in a new SQLite file they are made "
        "by themselves. Workers do not read it while they decide.",
    ),
    cfg.IntOpt(
        "pool_size",
        default=5,
        min=1,
        max=100,
        help="Connections of one process at most; further uses wait for one to be free.",
    ),
    cfg.FloatOpt(
        "pool_timeout",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds to wait for a free connection of the pool.",
    ),
    cfg.FloatOpt(
        "connect_timeout",
        default=5.0,
        min=1.0,
        max=600.0,
        help="Seconds to wait for a new connection to the database.",
    ),
    cfg.FloatOpt(
        "lock_timeout",
        default=5.0,
        min=0.1,
        max=600.0,
        help="Seconds that an edit waits for others that are being written.",
    ),
    cfg.FloatOpt(
        "statement_timeout",
        default=30.0,
        min=1.0,
        max=3600.0,
        help="Seconds that a statement may take, migrations included. Not for SQLite.",
    ),
    cfg.FloatOpt(
        "audit_retention_days",
        default=0.0,
        min=0.0,
        max=36_500.0,
        help="Days after which API processes delete an entry of the audit; 0: never.",
    ),
]


def settings(conf: Any) -> PolicyStoreSettings:
    """Where the policies are, and how long to wait for the database."""
    group = conf.policy_store
    return PolicyStoreSettings(
        connection=group.connection,
        pool_size=group.pool_size,
        pool_timeout_s=group.pool_timeout,
        connect_timeout_s=group.connect_timeout,
        lock_timeout_s=group.lock_timeout,
        statement_timeout_s=group.statement_timeout,
        audit_retention_days=group.audit_retention_days,
    )
