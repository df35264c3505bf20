"""Settings of the feed."""

from typing import Annotated, Literal

import msgspec

from scheduler_worker.model.aggregates import DEFAULT_CLUSTER
from scheduler_worker.options import Opt

HOSTS_AT_ONCE = 500
"""Hosts that are read, or stored, in one go."""

ClustersBy = Literal["one", "cell", "aggregate"]


class FeedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a source of hosts is read; times in seconds."""

    enabled: Annotated[bool, Opt()] = False
    """Whether hosts, instances and aggregates come from Nova's databases. One of the workers reads
    them; if that one stops, another goes on. Needs scheduler_worker[nova] and [api_database]
    connection. The same in all workers."""
    interval_s: Annotated[float, Opt(min=0.5, max=60)] = 2.0
    """Seconds between two looks at what has changed. When a worker that reads has missed one for
    twice this time, another goes on. The same in all workers."""
    services_interval_s: Annotated[float, Opt(min=1, max=600)] = 10.0
    """Seconds between two looks at the heartbeats of compute services."""
    full_interval_s: Annotated[float, Opt(min=1, max=3600)] = 60.0
    """Seconds between two looks at everything else: cells, aggregates, and whether a change was
    missed."""
    overlap_s: Annotated[float, Opt(min=2, max=600)] = 10.0
    """Seconds by which a look at changes goes back before the latest one: by how much the clocks of
    conductors may differ from the database's."""
    look_timeout_s: Annotated[float, Opt(min=0, max=600)] = 10.0
    """Before a request is refused because no host passes, what may have changed in Nova's databases
    and in Placement is looked at once more. Seconds that the request waits for that, at most, and
    not longer than half of its caller's time; 0: it is refused at once."""
    ready_timeout_s: Annotated[float, Opt(min=0, max=3600)] = 300.0
    """Seconds that a request waits, at most, until all hosts are known, such as after the first
    start, and not longer than half of its caller's time; 0: it is refused at once."""
    silent_after_s: float = 60.0
    """How old a heartbeat may be; also for how long a part that cannot be read counts as it was."""
    clusters: Annotated[
        ClustersBy,
        Opt(
            choices={
                "one": "all hosts are in [DEFAULT] default_cluster",
                "cell": "the hosts of each cell are a cluster with the cell's name",
                "aggregate": "aggregates name the clusters of their hosts in their metadata",
            }
        ),
    ] = "one"
    """Which cluster a host is in. A host that changes it takes its reservations along."""
    cluster_key: Annotated[str, Opt()] = "cluster"
    """With clusters = aggregate, the metadata key of a cluster's name. Of several aggregates of a
    host, the one with the lowest id decides; hosts without one are in [DEFAULT] default_cluster."""
    default_cluster: str = DEFAULT_CLUSTER


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How providers are read; times in seconds."""

    enabled: Annotated[bool, Opt(name="placement")] = True
    """Whether capacity and use of hosts come from Placement, with the account of [placement], as
    for Nova's scheduler. Without it the figures of compute nodes decide."""
    interval_s: float = 2.0
    """Between two looks at what has to be read."""
    list_interval_s: float = 60.0
    """Between two readings of all generations."""
    hosts_per_s: float = 5.0
    """Hosts that are read because a new generation was listed, which every claim makes."""
    connections: Annotated[int, Opt(name="placement_connections", min=1, max=64)] = 4
    """Requests at a time that read Placement, at most; as many beside them that verify hosts, and
    as many that ask for allocation candidates."""
    settle_s: float = 15.0
    """After which a deletion is through, and a reservation should be a consumer."""
