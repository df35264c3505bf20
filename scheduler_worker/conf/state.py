"""``[state]``, ``[cluster_lock]`` and ``[pending]``: the shared state, its lock, reservations."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.backends.settings import StateSettings
from scheduler_worker.service.placement.dependencies import PlacementLimits

STATE_OPTS = [
    cfg.StrOpt(
        "url",
        default="memory://",
        secret=True,
        help="Where all workers keep hosts, locks and reservations: memory:// for a single "
        "process, or redis://[user:password@]host:port/db, rediss://... for TLS, or "
        "redis+sentinel://host:port,host:port/service/db, or redis+cluster://host:port,host:port.",
    ),
    cfg.StrOpt(
        "prefix",
        default="scheduler_worker",
        regex=r"^[A-Za-z0-9_.-]{1,64}$",
        help="Prefix of every key. Workers with different prefixes share nothing.",
    ),
    cfg.IntOpt(
        "wait_replicas",
        default=0,
        min=0,
        max=10,
        help="Redis replicas that must have a reservation before the request is answered. A "
        "failover, also a planned one, may lose answered reservations unless this and "
        "min-replicas-to-write at every server are the number of replicas. Requests fail with "
        "StateUnavailable while fewer replicas than this keep up.",
    ),
    cfg.FloatOpt(
        "refresh_interval",
        default=5.0,
        min=0.1,
        help="Seconds after which a worker reads aggregates and the list of clusters anew, to "
        "see changes that other workers made.",
    ),
]

CLUSTER_LOCK_OPTS = [
    cfg.FloatOpt(
        "acquire_timeout",
        default=30.0,
        min=0.1,
        max=3600.0,
        help="Seconds a request waits for its cluster's lock before it fails with "
        "ClusterLockTimeout.",
    ),
    cfg.FloatOpt(
        "hold_timeout",
        default=10.0,
        min=0.1,
        max=600.0,
        help="Seconds for which the lease of a cluster's lock lasts. A dead worker delays others "
        "by at most this long; a slow one loses its lease, and its commit is refused and repeated.",
    ),
    cfg.FloatOpt(
        "offer_timeout",
        default=0.5,
        min=0.05,
        max=10.0,
        help="Seconds a waiting worker has to take the lock when it is offered. A dead waiter "
        "delays the others by this long.",
    ),
    cfg.IntOpt(
        "max_batch",
        default=64,
        min=1,
        max=1000,
        help="Requests that one worker decides under one lease, in one group commit, if so many "
        "are waiting.",
    ),
    cfg.StrOpt(
        "ordering",
        default="priority",
        choices=[
            ("priority", "small requests may overtake those that arrived shortly before"),
            ("fifo", "first come, first served"),
        ],
        help="The order in which requests that wait for a cluster are served.",
    ),
    cfg.FloatOpt(
        "max_priority_boost",
        deprecated_name="max_head_start",
        default=2.0,
        min=0.0,
        max=600.0,
        help="Seconds by which the smallest request of the highest priority may overtake others. "
        "No request is overtaken by one that arrives more than this after it.",
    ),
]

PENDING_OPTS = [
    cfg.FloatOpt(
        "ttl",
        default=600.0,
        min=1.0,
        max=86400.0,
        help="Seconds after which a reservation expires that was neither absorbed by a host's "
        "report nor confirmed nor released, nor listed there as being built or moved. Longer than "
        "the time between two reports.",
    ),
    cfg.FloatOpt(
        "wait_timeout",
        default=10.0,
        min=0.0,
        max=3600.0,
        help="Seconds a request waits for pending (reserved) resources to be released, if no host "
        "passes but one would without the reservations. 0: it fails at once.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=32,
        min=0,
        max=1000,
        help="Requests of one worker that may wait for pending resources at a time; they occupy no "
        "slot. Further ones fail at once.",
    ),
    cfg.IntOpt(
        "max_per_cluster",
        default=100_000,
        min=1,
        help="Reservations that one cluster may have. Further requests fail with NoValidHost until "
        "some have ended.",
    ),
    cfg.FloatOpt(
        "remember_answers",
        default=120.0,
        min=0.0,
        max=86400.0,
        help="Seconds for which a repeated request gets the same answer, even if its reservation "
        "has been absorbed since. At least twice the RPC timeout of the callers.",
    ),
]


def settings(conf: Any) -> StateSettings:
    """Where the state is, and the timeouts that its engine enforces."""
    return StateSettings(
        url=conf.state.url,
        prefix=conf.state.prefix,
        wait_replicas=conf.state.wait_replicas,
        hold_timeout_s=conf.cluster_lock.hold_timeout,
        offer_timeout_s=conf.cluster_lock.offer_timeout,
    )


def limits(conf: Any, *, max_attempts: int) -> PlacementLimits:
    """Bounds and timeouts of placement."""
    lock, pending = conf.cluster_lock, conf.pending
    return PlacementLimits(
        acquire_timeout_s=lock.acquire_timeout,
        hold_timeout_s=lock.hold_timeout,
        max_batch=lock.max_batch,
        ordering=lock.ordering,
        max_priority_boost_s=lock.max_priority_boost,
        reservation_ttl_s=pending.ttl,
        wait_timeout_s=pending.wait_timeout,
        max_waiting=pending.max_waiting,
        max_reservations=pending.max_per_cluster,
        max_attempts=max_attempts,
        globals_max_age_s=conf.state.refresh_interval,
        remember_answers_s=pending.remember_answers,
    )
