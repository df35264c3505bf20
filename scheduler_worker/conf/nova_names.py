"""Names in a ``nova.conf`` that concern other parts of Nova.

They are no mistakes of the operator, so there is no warning; ``nova_compat`` has the options of
Nova's scheduler. These are the names that Nova 34 and the libraries in it list for
``oslo-config-generator``, former names included, and some of older releases.
"""

_OF_DATABASES = """
    asyncio_connection asyncio_slave_connection backend connection_debug connection_parameters
    connection_recycle_time connection_trace db_inc_retry_interval db_max_retries
    db_max_retry_interval db_retry_interval max_overflow max_pool_size max_retries
    mysql_enable_ndb mysql_sql_mode mysql_wsrep_sync_wait pool_timeout retry_interval
    slave_connection sqlite_synchronous synchronous use_db_reconnect
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
    "api_database": _OF_DATABASES,
    "database": _OF_DATABASES,
}
"""Group -> names, for the groups that have options of the worker, too."""

FORMER = {
    "query_placement_for_traits_in_extra_specs": "traits in extra specs are always required",
    "scheduler_default_filters": "it is enabled_filters in [filter_scheduler] now",
    "scheduler_driver": "this worker takes the place of all drivers",
    "scheduler_host_manager": "this worker takes the place of all host managers",
    "scheduler_tracks_instance_changes": "reports and casts about instances are always used",
}
"""Options that releases of Nova had in [DEFAULT] -> what became of them, where another name or none
is left. Others have lost a prefix at most."""

GROUPS = """
    api audit_middleware_notifications barbican barbican_service_user cache cells
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
