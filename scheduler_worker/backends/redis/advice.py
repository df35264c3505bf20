"""Warns of settings of a Redis that endanger reservations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

OLDEST_REDIS = (6, 2)


def advice(redis: str, info: Mapping[str, str] | None, wait_replicas: int) -> Iterator[str]:
    """Warnings about the server named ``redis``, from its reply to INFO (None: refused)."""
    if info is None:
        yield (
            f"{redis} refuses INFO to this account: its settings are not checked, and writes lost "
            "in a failover may go unnoticed; allow +info"
        )
        return
    if info.get("aof_enabled") != "1":
        yield (
            f"{redis} keeps no append-only file: a restart may lose reservations; set "
            "appendonly yes"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"{redis} may evict reservations (maxmemory-policy {policy}); set maxmemory-policy "
            "noeviction"
        )
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_REDIS:
        yield f"{redis} is of version {version}; 6.2 is the oldest supported"
    yield from _of_replicas(redis, info, wait_replicas)


def _of_replicas(redis: str, info: Mapping[str, str], wanted: int) -> Iterator[str]:
    connected = int(info.get("connected_slaves", 0))
    if connected < wanted:
        yield (
            f"{redis} has {connected} replicas; while they are fewer than the {wanted} of [state] "
            "wait_replicas, every request fails"
        )
    if connected and "min_slaves_good_slaves" not in info:  # INFO has it only where it is set
        yield (
            f"{redis} accepts writes while it is cut off from its replicas, and loses them when "
            "one of the replicas takes over; set min-replicas-to-write 1"
        )
