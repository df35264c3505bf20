"""Options of Nova's scheduler that have no effect here, each with the reason, and Nova's names.

The options are accepted, whatever their values, so that a ``nova.conf`` can be copied; the worker
logs them once when it starts. It warns of a list of filters that relies on Placement.

The names concern other parts of Nova. They are no mistakes of the operator, so there is no warning.
These are the names that Nova 34 and the libraries in it list for ``oslo-config-generator``, former
names included, and some of older releases.
"""

from typing import Any

from scheduler_worker.configuration import Configuration

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


# Names

_OF_DATABASES = """
    asyncio_connection asyncio_slave_connection backend connection_debug connection_parameters
    connection_recycle_time connection_trace db_inc_retry_interval db_max_retries
    db_max_retry_interval db_retry_interval max_overflow max_pool_size max_retries
    mysql_enable_ndb mysql_sql_mode mysql_wsrep_sync_wait pool_timeout retry_interval
    slave_connection sqlite_synchronous synchronous synchronous_reader use_db_reconnect
    """

OPTIONS = {
    "DEFAULT": """
        allow_resize_to_same_host api_paste_config arq_binding_timeout backdoor_port
        backdoor_socket block_device_allocate_retries block_device_allocate_retries_interval
        cert client_socket_timeout compute_driver compute_monitors concurrency_backend
        config_drive_format console_allowed_origins console_host console_token_ttl daemon
        default_access_ip_network_name default_ephemeral_format default_notification_level
        enable_new_services flat_injected force_config_drive force_raw_images
        heal_instance_info_cache_interval image_cache_manager_interval
        image_cache_subdirectory_name injected_network_template instance_build_timeout
        instance_delete_interval instance_name_template instance_usage_audit
        instance_usage_audit_period instances_path internal_service_availability_zone key
        live_migration_retry_count log_options max_concurrent_builds
        max_concurrent_live_migrations max_concurrent_snapshots max_header_line
        max_local_block_devices maximum_instance_delete_attempts migrate_max_retries mkisofs_cmd
        my_block_storage_ip my_ip my_shared_fs_storage_ip network_allocate_retries
        network_device_mtu non_inheritable_image_properties notification_format
        notify_on_state_change novncproxy_base_url novncproxy_host novncproxy_port
        osapi_compute_unique_server_name_scope ovs_vsctl_timeout password_length pci_alias
        pci_passthrough_whitelist periodic_fuzzy_delay pointer_model preallocate_images
        pybasedir quota_cores quota_injected_file_content_bytes quota_injected_file_path_length
        quota_injected_files quota_instances quota_key_pairs quota_metadata_items quota_ram
        quota_server_group_members quota_server_groups reboot_timeout reclaim_instance_interval
        record reimage_timeout_per_gb remove_unused_base_images
        remove_unused_original_minimum_age_seconds rescue_timeout resize_confirm_window
        resize_fs_using_block_device resume_guests_state_on_host_boot rootwrap_config
        run_external_periodic_tasks running_deleted_instance_action
        running_deleted_instance_poll_interval running_deleted_instance_timeout
        secure_proxy_ssl_header shelved_offload_time shelved_poll_interval shutdown_timeout
        source_is_ipv6 ssl_only stale_share_access_reconcile_interval sync_power_state_interval
        sync_power_state_pool_size tcp_keepidle tempdir thread_pool_statistic_period timeout_nbd
        use_cow_images use_rootwrap_daemon vcpu_pin_set vif_plugging_is_fatal
        vif_plugging_timeout virt_mkfs vnc_enabled volume_usage_poll_interval web
        wsgi_default_pool_size wsgi_keep_alive wsgi_log_format wsgi_server_debug

        auth_strategy enabled_apis enabled_ssl_apis firewall_driver linuxnet_interface_driver
        metadata_listen metadata_listen_port metadata_workers osapi_compute_listen
        osapi_compute_listen_port osapi_compute_workers use_neutron
        """,
    "compute": """
        image_type_exclude_list live_migration_wait_for_vif_plug max_concurrent_disk_ops
        max_disk_devices_to_attach provider_config_location
        resource_provider_association_refresh sharing_providers_max_uuids_per_request
        shutdown_retry_interval update_resources_max_workers vmdk_allowed_types
        """,
    "api": """
        compute_link_prefix config_drive_skip_versions dhcp_domain enable_instance_password
        glance_link_prefix instance_list_cells_batch_fixed_size
        instance_list_cells_batch_strategy instance_list_per_project_cells
        list_records_by_skipping_down_cells local_metadata_per_cell max_limit
        metadata_cache_expiration neutron_default_project_id neutron_default_tenant_id
        response_validation use_neutron_default_nets vendordata_dynamic_connect_timeout
        vendordata_dynamic_failure_fatal vendordata_dynamic_read_timeout
        vendordata_dynamic_ssl_certfile vendordata_dynamic_targets vendordata_jsonfile_path
        vendordata_providers

        auth_strategy fping_path hide_server_address_states use_forwarded_for
        """,
    "api_database": _OF_DATABASES,
    "database": _OF_DATABASES,
}
"""Group -> names, for the groups that have options of the worker, too."""

FORMER = {
    "query_placement_for_availability_zone": "zones of requests always count",
    "query_placement_for_traits_in_extra_specs": "traits in extra specs are always required",
    "scheduler_default_filters": "it is enabled_filters in [filter_scheduler] now",
    "scheduler_driver": "this worker takes the place of all drivers",
    "scheduler_host_manager": "this worker takes the place of all host managers",
    "scheduler_tracks_instance_changes": "reports and casts about instances are always used",
}
"""Options that releases of Nova had, in whichever group -> what became of them, where another name
or none is left. Others have lost a prefix at most."""

GROUPS = """
    audit_middleware_notifications barbican barbican_service_user cache cells
    cinder conductor console consoleauth cors crypto cyborg devices
    ephemeral_storage_encryption glance guestfs healthcheck hyperv image_cache ironic
    key_manager keymgr keystone keystone_authtoken libvirt manila mks neutron notifications
    nova_sys_admin osapi_v21 pci placement placement_database powervm privsep
    privsep_entrypoint privsep_osbrick profiler quota rdp remote_debug serial_console
    service_user spice ssl upgrade_levels vault
    vendordata_dynamic_auth vif_plug_linux_bridge_privileged vif_plug_ovs_privileged vmware vnc
    workarounds wsgi xenserver zvm
    """
"""Groups without options of the worker."""

PREFIXES = ("oslo_", "os_")
"""The groups of libraries begin so; groups that the worker reads are in lists of their own."""


# Sentences


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
    if not conf[_RABBIT].rabbit_ha_queues:
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
