"""Options of Nova's scheduler that have no effect here, each with the reason.

They are accepted, whatever their values, so that a ``nova.conf`` can be copied; the worker logs
them once when it starts. It warns of a list of filters that relies on Placement.
"""

from typing import Any

from scheduler_worker.conf.configuration import Configuration

_NO_PLACEMENT = "there is no Placement service; the worker evaluates the hosts' own reports"
_NO_CELLS = "there are no cell databases to read; hosts are known by their reports"
_REPORTED = "each host reports what it reserves"
_PEER = "it is for the programs that talk to the scheduler"
_NO_NOTIFICATIONS = "the worker sends no notifications; see [monitoring]"
_NOVA_ALONE = "it tunes Nova's own processes"
_RABBIT = "oslo_messaging_rabbit"

UNUSED: dict[str, dict[str, str]] = {
    "DEFAULT": {
        "cell_worker_thread_pool_size": _NO_CELLS,
        "default_green_pool_size": _NOVA_ALONE,
        "default_schedule_zone": _PEER,
        "default_thread_pool_size": "requests are served by [rpc] slots threads",
        "long_rpc_timeout": _PEER,
        "manager_shutdown_timeout": "graceful_shutdown_timeout is the only such timeout",
        "periodic_enable": "there are no periodic tasks to switch off",
        "reserved_host_cpus": _REPORTED,
        "reserved_host_disk_mb": _REPORTED,
        "reserved_host_memory_mb": _REPORTED,
        "reserved_huge_pages": _REPORTED,
        "scheduler_instance_sync_interval": _PEER,
        "servicegroup_driver": "a host is up while its reports arrive",
        "state_path": "[state] url says where the worker keeps its state",
        "update_resources_interval": _PEER,
    },
    "scheduler": {
        "discover_hosts_in_cells_interval": _NO_CELLS,
        "workers": "scheduler-worker --workers N says how many processes run",
    },
    "filter_scheduler": {
        "pci_in_placement": _NO_PLACEMENT + ", PCI pools included",
        "track_instance_changes": "reports and casts about instances are always used",
    },
    "compute": {
        "consecutive_build_service_disable_threshold": _PEER,
        "cpu_dedicated_set": _PEER,
        "cpu_shared_set": _PEER,
    },
    "workarounds": {
        "disable_fallback_pcpu_query": _NO_PLACEMENT,
        "disable_group_policy_check_upcall": _PEER,
    },
    "upgrade_levels": {"baseapi": _PEER, "scheduler": _PEER},
    "pci": {
        "alias": "requests carry their PCI devices already",
        "device_spec": "hosts report their PCI pools",
        "report_in_placement": _NO_PLACEMENT,
    },
    "notifications": {
        "default_level": _NO_NOTIFICATIONS,
        "notification_format": _NO_NOTIFICATIONS,
        "versioned_notifications_topics": _NO_NOTIFICATIONS,
    },
    "quota": {"recheck_quota": _PEER},
    _RABBIT: {
        "heartbeat_in_pthread": "heartbeats have a thread of their own",
        "rabbit_qos_prefetch_count": "[rpc] slots says how many messages a worker takes at once",
        "rabbit_stream_fanout": "a worker reads fanouts from its own queue, beside the stream",
        "use_queue_manager": "a worker's queues are always named after [DEFAULT] host",
    },
}

_WITH_FEED = {
    ("DEFAULT", "cell_worker_thread_pool_size"): "each cell is read by one thread",
    ("DEFAULT", "servicegroup_driver"): "the heartbeats in the cells' databases are read",
    ("scheduler", "discover_hosts_in_cells_interval"): "the worker only reads the databases; run "
    "nova-manage cell_v2 discover_hosts regularly",
    ("filter_scheduler", "track_instance_changes"): "the cells' databases say where instances "
    "are; casts of computes only make the worker look sooner",
}
"""Other reasons, with [nova_feed] enabled."""

_OF_PLACEMENT = {
    "vCPUs": ("CoreFilter", "AggregateCoreFilter", "ExactCoreFilter"),
    "memory": ("RamFilter", "AggregateRamFilter", "ExactRamFilter"),
    "disk": ("DiskFilter", "AggregateDiskFilter", "ExactDiskFilter"),
}
"""Resources that Nova leaves to Placement, and the filters that decide them here."""


def unused(conf: Configuration) -> list[str]:
    """A sentence for each option that a file sets and that has no effect."""
    with_feed = _WITH_FEED if conf.nova_feed.enabled else {}
    set_ones = {
        (section if section == "DEFAULT" else section.lower(), name)
        for _, sections in conf.sections()
        for section, options in sections.items()
        for name in options
    }
    return [
        f"[{group}] {name} is accepted and does nothing here: {with_feed.get((group, name), why)}"
        for group, reasons in UNUSED.items()
        for name, why in reasons.items()
        if (group, name) in set_ones
    ]


def unmirrored(conf: Any) -> list[str]:
    """A sentence where queues seem to be mirrored."""
    if _RABBIT not in conf or not conf[_RABBIT].rabbit_ha_queues:
        return []
    return [
        f"[{_RABBIT}] rabbit_ha_queues mirrors nothing: it declares queues with x-ha-policy, which "
        "RabbitMQ has ignored since 3.0. Turn it off, and replicate with rabbit_quorum_queue, in "
        "all services alike; before RabbitMQ 4.0 a policy can mirror, too"
    ]


def undecided(conf: Any) -> list[str]:
    """A sentence for each resource that Nova leaves to Placement and no enabled filter decides."""
    if conf.nova_claims.enabled:
        return []  # Placement decides them
    enabled = set(conf.filter_scheduler.enabled_filters)
    return [
        f"[filter_scheduler] enabled_filters: nothing decides {what}, for there is no Placement "
        f"service; add {filters[0]}"
        for what, filters in _OF_PLACEMENT.items()
        if enabled.isdisjoint(filters)
    ]
