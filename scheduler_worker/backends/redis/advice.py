"""Warns of settings of a Redis that endanger reservations."""

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


def _of_replicas(redis: str, info: Mapping[str, str], wait_replicas: int) -> Iterator[str]:
    connected = int(info.get("connected_slaves", 0))
    if connected < wait_replicas:
        yield (
            f"{redis} has {connected} replicas; while they are fewer than the {wait_replicas} of "
            "[state] wait_replicas, every request fails"
        )
    # INFO shows whether min-replicas-to-write is set; its value may be refused to the account.
    is_set = "min_slaves_good_slaves" in info
    required = int(info.get("min_replicas_to_write", connected)) if is_set else 0
    if min(wait_replicas, required) < connected:
        yield (
            f"{redis} may lose answered reservations when one of its {connected} replicas takes "
            f"over: each of them must have every write; set [state] wait_replicas = {connected} "
            f"and at every server min-replicas-to-write {connected}"
        )
