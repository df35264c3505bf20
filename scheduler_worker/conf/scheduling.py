"""``[scheduler]``, ``[filter_scheduler]``, ``[metrics]``, ``[compute]``: Nova's names and defaults.

Only ``enabled_filters`` has another default: there is no Placement service, so filters of the
worker's own decide capacity and zones.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.conf import decisions
from scheduler_worker.scheduling.options import (
    ALL_FILTERS,
    ALL_WEIGHERS,
    DEFAULT_FILTERS,
    Options,
)

ARCHITECTURES = (
    *("alpha", "armv6", "armv7l", "armv7b", "aarch64", "cris", "i686", "ia64", "lm32"),
    *("m68k", "microblaze", "microblazeel", "mips", "mipsel", "mips64", "mips64el"),
    *("openrisc", "parisc", "parisc64", "ppc", "ppcle", "ppc64", "ppc64le", "ppcemb", "s390"),
    *("s390x", "sh4", "sh4eb", "sparc", "sparc64", "unicore32", "x86_64", "xtensa", "xtensaeb"),
)


def _switch(name: str, help_text: str) -> cfg.BoolOpt:
    return cfg.BoolOpt(name, default=False, mutable=True, help=help_text)


SCHEDULER_OPTS = [
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        mutable=True,
        help="Hosts that a caller may try for an instance: the chosen one and up to "
        "max_attempts - 1 alternates.",
    ),
    cfg.IntOpt(
        "max_placement_results",
        default=1000,
        min=1,
        help="Allocation candidates that Placement is asked for at most, for requests that take "
        "from sharing providers and are not bound to certain hosts.",
    ),
    _switch(
        "limit_tenants_to_placement_aggregate",
        "Whether a project for which there are aggregates (their metadata has a key that begins "
        "with filter_tenant_id, and the project's id as its value) may use only their hosts.",
    ),
    _switch(
        "placement_aggregate_required_for_tenants",
        "Whether a project without such an aggregate may use no host at all. Only together with "
        "limit_tenants_to_placement_aggregate.",
    ),
    _switch(
        "query_placement_for_image_type_support",
        "Whether a host must have the trait COMPUTE_IMAGE_TYPE_<disk format> of the image.",
    ),
    _switch(
        "enable_isolated_aggregate_filtering",
        "Whether hosts of an aggregate with the metadata trait:<name>=required take only "
        "requests that require that trait.",
    ),
    _switch(
        "image_metadata_prefilter",
        "Whether image properties such as hw_disk_bus and hw_video_model require the matching "
        "traits of a host.",
    ),
    _switch(
        "query_placement_for_routed_network_aggregates",
        "Whether a host must report every requested network.",
    ),
]


def _multiplier(
    name: str, default: float, what: str, *, minimum: float | None = None
) -> cfg.FloatOpt:
    return cfg.FloatOpt(
        f"{name}_weight_multiplier",
        default=default,
        min=minimum,
        mutable=True,
        help=f"Multiplier of the weigher that prefers {what}; negative reverses it, 0 turns it "
        f"off. The aggregate metadata key {name}_weight_multiplier overrides it.",
    )


FILTER_SCHEDULER_OPTS = [
    cfg.MultiStrOpt(
        "available_filters",
        default=[ALL_FILTERS],
        help="Filters that may be enabled: names under which packages register them, "
        f"module.Class paths, or {ALL_FILTERS} for all registered ones.",
    ),
    cfg.ListOpt(
        "enabled_filters",
        default=list(DEFAULT_FILTERS),
        help="The filters that a host must pass, in this order.",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=[ALL_WEIGHERS],
        help="The weighers: names under which packages register them, module.Class paths, or "
        f"{ALL_WEIGHERS} for all registered ones.",
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        mutable=True,
        help="The host is drawn at random among this many of the best.",
    ),
    cfg.BoolOpt(
        "shuffle_best_same_weighed_hosts",
        default=False,
        mutable=True,
        help="Whether hosts that share the best weight are put into a random order.",
    ),
    cfg.StrOpt(
        "image_properties_default_architecture",
        choices=ARCHITECTURES,
        mutable=True,
        help="The CPU architecture of images that name none, such as x86_64.",
    ),
    cfg.IntOpt(
        "max_io_ops_per_host",
        default=8,
        min=0,
        mutable=True,
        help="IoOpsFilter: a host with this many instances being built, resized, rescued and so "
        "on takes no more. The aggregate metadata key of that name overrides it for "
        "AggregateIoOpsFilter.",
    ),
    cfg.IntOpt(
        "max_instances_per_host",
        default=50,
        min=1,
        mutable=True,
        help="NumInstancesFilter: a host with this many instances takes no more. The aggregate "
        "metadata key of that name overrides it for AggregateNumInstancesFilter.",
    ),
    cfg.ListOpt(
        "isolated_images",
        default=[],
        mutable=True,
        help="IsolatedHostsFilter: ids of the images that may run on isolated_hosts only.",
    ),
    cfg.ListOpt(
        "isolated_hosts",
        default=[],
        mutable=True,
        help="IsolatedHostsFilter: names of the hosts for isolated_images.",
    ),
    cfg.BoolOpt(
        "restrict_isolated_hosts_to_isolated_images",
        default=True,
        mutable=True,
        help="IsolatedHostsFilter: whether isolated_hosts take isolated_images only.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_namespace",
        mutable=True,
        help="AggregateImagePropertiesIsolation: look only at metadata keys that begin with this "
        "and the separator.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_separator",
        default=".",
        mutable=True,
        help="AggregateImagePropertiesIsolation: what stands between the namespace and the rest "
        "of a key.",
    ),
    _multiplier("ram", 1.0, "hosts with more free memory"),
    _multiplier("cpu", 1.0, "hosts with more free vCPUs"),
    _multiplier("disk", 1.0, "hosts with more free local disk"),
    _multiplier("io_ops", -1.0, "hosts with more I/O operations under way"),
    _multiplier("pci", 1.0, "hosts with fewer free PCI devices", minimum=0.0),
    _multiplier("num_instances", 0.0, "hosts with more instances"),
    _multiplier("soft_affinity", 1.0, "hosts with more members of the group", minimum=0.0),
    _multiplier("soft_anti_affinity", 1.0, "hosts with fewer members of the group", minimum=0.0),
    _multiplier("build_failure", 1000000.0, "hosts with fewer failed builds"),
    _multiplier("cross_cell_move", 1000000.0, "hosts in the instance's present cell"),
    _multiplier("hypervisor_version", 1.0, "hosts with newer hypervisors"),
    _multiplier("image_props", 0.0, "hosts whose instances have similar images"),
    cfg.ListOpt(
        "image_props_weight_setting",
        default=[],
        mutable=True,
        help="property=ratio items; with any, only these image properties count.",
    ),
]

METRICS_OPTS = [
    cfg.FloatOpt(
        "weight_multiplier", default=1.0, mutable=True, help="Multiplier of the metrics weigher."
    ),
    cfg.ListOpt(
        "weight_setting",
        default=[],
        mutable=True,
        help="metric=ratio items, such as cpu.percent=-1.0; the weight is the sum of metric x "
        "ratio.",
    ),
    cfg.BoolOpt(
        "required",
        default=True,
        mutable=True,
        help="Whether a host without one of the metrics is an error. If not, such a host weighs "
        "weight_of_unavailable.",
    ),
    cfg.FloatOpt(
        "weight_of_unavailable",
        default=-10000.0,
        mutable=True,
        help="The weight of a host without one of the metrics.",
    ),
]

COMPUTE_OPTS = [
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        mutable=True,
        help="Whether NUMA instances fill a host's cells one after the other, instead of "
        "spreading evenly over them.",
    ),
]


def options(conf: Any, *, service_down_time_s: float, default_availability_zone: str) -> Options:
    """The options of filters and weighers; most have the same names there."""
    groups = {
        "scheduler": SCHEDULER_OPTS,
        "filter_scheduler": FILTER_SCHEDULER_OPTS,
        "compute": COMPUTE_OPTS,
    }
    values: dict[str, Any] = {
        opt.dest: conf[group][opt.dest] for group, opts in groups.items() for opt in opts
    }
    values |= {f"metrics_{opt.dest}": conf.metrics[opt.dest] for opt in METRICS_OPTS}
    values |= {
        "service_down_time_s": service_down_time_s,
        "default_availability_zone": default_availability_zone,
        "claims_in_placement": conf.nova_claims.enabled,
        "ranked_hosts": decisions.RANKED_HOSTS if conf.decisions.enabled else 0,
    }
    return Options.of(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )
