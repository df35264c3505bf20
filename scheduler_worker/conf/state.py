"""``[state]``, ``[cluster_lock]`` and ``[pending]``: what the replicas share."""

from __future__ import annotations

from oslo_config import cfg

STATE_OPTS = [
    cfg.StrOpt(
        "url",
        default="memory://",
        secret=True,
        help="Where the replicas keep hosts, locks and promises: memory:// for one process on its "
        "own, or redis://[user:password@]host:port/db, rediss://... for TLS, or "
        "redis+sentinel://host:port,host:port/service/db, or redis+cluster://host:port,host:port.",
    ),
    cfg.StrOpt(
        "prefix",
        default="scheduler_worker",
        regex=r"^[A-Za-z0-9_.-]{1,64}$",
        help="Begins every key. Workers with another prefix share nothing.",
    ),
    cfg.IntOpt(
        "wait_replicas",
        default=0,
        min=0,
        max=10,
        help="Redis replicas that must have a promise before it is answered. With 0 a failover "
        "may forget the last promises; with more, a request fails with StateUnavailable while "
        "fewer replicas than that keep up.",
    ),
    cfg.FloatOpt(
        "refresh_interval",
        default=5.0,
        min=0.1,
        help="Seconds after which a worker looks again for aggregates and clusters that it was "
        "not told of.",
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
        help="Seconds a worker may hold a cluster's lock. A dead worker delays others by at most "
        "this long; a slow one loses its hold, and its commit is refused and repeated.",
    ),
    cfg.FloatOpt(
        "offer_timeout",
        default=0.5,
        min=0.05,
        max=10.0,
        help="Seconds a waiting worker has to take the lock when it is offered. A dead waiter "
        "costs the others this long.",
    ),
    cfg.IntOpt(
        "max_batch",
        default=64,
        min=1,
        max=1000,
        help="Requests that one worker serves under one hold, if so many are waiting.",
    ),
    cfg.StrOpt(
        "ordering",
        default="priority",
        choices=[
            ("priority", "easy requests get a head start over those that come shortly after"),
            ("fifo", "first come, first served"),
        ],
        help="Who is served first of those who wait for a cluster.",
    ),
    cfg.FloatOpt(
        "max_head_start",
        default=2.0,
        min=0.0,
        max=600.0,
        help="Seconds by which the easiest request of the highest priority may overtake others. "
        "Nobody is overtaken by requests that come later than this after it.",
    ),
]

PENDING_OPTS = [
    cfg.FloatOpt(
        "ttl",
        default=600.0,
        min=1.0,
        max=86400.0,
        help="Seconds after which a promise ends that was neither seen in a host's report nor "
        "confirmed nor released. It should be longer than an instance takes to be built.",
    ),
    cfg.FloatOpt(
        "wait_timeout",
        default=10.0,
        min=0.0,
        max=3600.0,
        help="Seconds a request waits for promised resources to be given back, if no host passes "
        "but one would without them. 0: it fails at once.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=32,
        min=0,
        max=1000,
        help="Requests of one worker that may wait so at a time; they occupy no slot. What comes "
        "beyond fails at once.",
    ),
    cfg.IntOpt(
        "max_per_cluster",
        default=100_000,
        min=1,
        help="Live promises that one cluster may have. A request beyond fails with NoValidHost "
        "until some have ended.",
    ),
    cfg.FloatOpt(
        "remember_answers",
        default=120.0,
        min=0.0,
        max=86400.0,
        help="Seconds for which a request that comes again gets the answer it got, even if its "
        "promise has become use since. At least twice the RPC timeout of the callers.",
    ),
]
