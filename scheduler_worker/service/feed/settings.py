"""Settings of the feed."""

from __future__ import annotations

from typing import Literal

import msgspec

HOSTS_AT_ONCE = 500
"""Hosts that are read, or stored, in one go."""

ClustersBy = Literal["one", "cell", "aggregate"]


class FeedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a source of hosts is read; times in seconds."""

    interval_s: float = 2.0
    """Between two looks at what has changed."""
    services_interval_s: float = 10.0
    full_interval_s: float = 60.0
    """Between two looks at everything else: parts, aggregates, and whether nothing was missed."""
    overlap_s: float = 10.0
    look_timeout_s: float = 10.0
    """How long a request that no host passes waits for another look; 0: it does not."""
    ready_timeout_s: float = 300.0
    """How long a request waits until all hosts are known; 0: it does not."""
    silent_after_s: float = 60.0
    """How old a heartbeat may be; also for how long a part that cannot be read counts as it was."""
    clusters: ClustersBy = "one"
    cluster_key: str = "cluster"
    default_cluster: str = "default"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How providers are read; times in seconds."""

    interval_s: float = 2.0
    """Between two looks at what has to be read."""
    list_interval_s: float = 60.0
    """Between two readings of all generations."""
    hosts_per_s: float = 5.0
    """Hosts that are read because a new generation was listed, which every claim makes."""
    connections: int = 4
    """Requests to Placement at a time, at most."""
    settle_s: float = 15.0
    """After which a deletion is through, and a reservation should be a consumer."""
