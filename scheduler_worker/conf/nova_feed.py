"""``[nova_feed]``, ``[api_database]`` and ``[database]``: hosts from the databases of Nova."""

from __future__ import annotations

from typing import Any, NamedTuple

from oslo_config import cfg

from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.service.feed.settings import FeedSettings, ProviderSettings
from scheduler_worker.service.placement.asking import AskingSettings

GROUP = "nova_feed"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether hosts, instances and aggregates come from Nova's databases. One of the "
        "workers reads them; if that one stops, another goes on. Needs scheduler_worker[nova] and "
        "[api_database] connection. The same in all workers.",
    ),
    cfg.FloatOpt(
        "interval",
        default=2.0,
        min=0.5,
        max=60.0,
        help="Seconds between two looks at what has changed. When a worker that reads has missed "
        "one for twice this time, another goes on. The same in all workers.",
    ),
    cfg.FloatOpt(
        "services_interval",
        default=10.0,
        min=1.0,
        max=600.0,
        help="Seconds between two looks at the heartbeats of compute services.",
    ),
    cfg.FloatOpt(
        "full_interval",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds between two looks at everything else: cells, aggregates, and whether a "
        "change was missed.",
    ),
    cfg.FloatOpt(
        "overlap",
        default=10.0,
        min=2.0,
        max=600.0,
        help="Seconds by which a look at changes goes back before the latest one: by how much the "
        "clocks of conductors may differ from the database's.",
    ),
    cfg.FloatOpt(
        "look_timeout",
        default=10.0,
        min=0.0,
        max=600.0,
        help="Before a request is refused because no host passes, what may have changed in Nova's "
        "databases and in Placement is looked at once more. Seconds that the request waits for "
        "that, at most, and not longer than half of its caller's time; 0: it is refused at once.",
    ),
    cfg.FloatOpt(
        "ready_timeout",
        default=300.0,
        min=0.0,
        max=3600.0,
        help="Seconds that a request waits, at most, until all hosts are known, such as after the "
        "first start, and not longer than half of its caller's time; 0: it is refused at once.",
    ),
    cfg.StrOpt(
        "clusters",
        default="one",
        choices=[
            ("one", "all hosts are in [DEFAULT] default_cluster"),
            ("cell", "the hosts of each cell are a cluster with the cell's name"),
            ("aggregate", "aggregates name the clusters of their hosts in their metadata"),
        ],
        help="Which cluster a host is in. A host that changes it takes its reservations along.",
    ),
    cfg.StrOpt(
        "cluster_key",
        default="cluster",
        help="With clusters = aggregate, the metadata key of a cluster's name. Of several "
        "aggregates of a host, the one with the lowest id decides; hosts without one are in "
        "[DEFAULT] default_cluster.",
    ),
    cfg.BoolOpt(
        "image_properties",
        default=False,
        help="Whether the properties of the images that instances were made from are read, too, "
        "which ImagePropertiesWeigher compares: some ten more rows for each instance.",
    ),
    cfg.BoolOpt(
        "placement",
        default=True,
        help="Whether capacity and use of hosts are those of Placement, with the account of "
        "[placement], as for Nova's scheduler. Without it the figures of compute nodes decide.",
    ),
    cfg.IntOpt(
        "placement_connections",
        default=4,
        min=1,
        max=64,
        help="Requests at a time that read Placement, at most; as many beside them that verify "
        "hosts, and as many that ask for allocation candidates.",
    ),
    cfg.FloatOpt(
        "connect_timeout",
        default=5.0,
        min=1.0,
        max=600.0,
        help="Seconds to wait for a new connection to a database.",
    ),
    cfg.FloatOpt(
        "statement_timeout",
        default=30.0,
        min=1.0,
        max=600.0,
        help="Seconds that a statement may take.",
    ),
]
_CONNECTION_HELP = "Only read, and only with [nova_feed] enabled: a read-only account suffices."

API_DATABASE_OPTS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help=f"Nova's API database, as in nova.conf. {_CONNECTION_HELP}",
    ),
    cfg.StrOpt(
        "connection_parameters",
        default="",
        secret=True,
        help="Added to the query of that URL, as a=b&c=d.",
    ),
    cfg.IntOpt(
        "connection_recycle_time",
        default=3600,
        min=-1,
        help="Seconds after which an idle connection to any of Nova's databases is replaced.",
    ),
]
DATABASE_OPTS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        help="A cell's database, as in nova.conf. It is not connected to: its parts fill the "
        "templates in cell mappings, such as {scheme}://{username}:{password}@{hostname}/cell1.",
    ),
]


class NovaFeed(NamedTuple):
    """How Nova is read."""

    feed: FeedSettings
    databases: NovaDatabasesSettings
    providers: ProviderSettings | None
    """None: Placement is not read."""


def settings(conf: Any, *, silent_after_s: float, default_cluster: str) -> NovaFeed | None:
    """How Nova is read; None: it is not."""
    group = conf.nova_feed
    if not group.enabled:
        return None
    feed = FeedSettings(
        interval_s=group.interval,
        services_interval_s=group.services_interval,
        full_interval_s=group.full_interval,
        overlap_s=group.overlap,
        look_timeout_s=group.look_timeout,
        ready_timeout_s=group.ready_timeout,
        silent_after_s=silent_after_s,
        clusters=group.clusters,
        cluster_key=group.cluster_key,
        default_cluster=default_cluster,
    )
    databases = NovaDatabasesSettings(
        api_connection=conf.api_database.connection or "",
        local_connection=conf.database.connection,
        connection_parameters=conf.api_database.connection_parameters,
        recycle_s=conf.api_database.connection_recycle_time,
        image_properties=group.image_properties,
        connect_timeout_s=group.connect_timeout,
        statement_timeout_s=group.statement_timeout,
    )
    providers = ProviderSettings(connections=group.placement_connections)
    return NovaFeed(feed, databases, providers if group.placement else None)


def asking(conf: Any) -> AskingSettings:
    """How Placement is asked for allocation candidates."""
    return AskingSettings(
        workers=conf.nova_feed.placement_connections,
        timeout_s=conf.nova_claims.timeout,
        limit=conf.scheduler.max_placement_results,
    )
