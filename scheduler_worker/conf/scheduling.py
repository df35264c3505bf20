"""``[scheduler]``, ``[filter_scheduler]`` and ``[metrics]``: Nova's groups, names and defaults.

Only ``enabled_filters`` has another default: without a placement service the worker decides
capacity and zones itself.
"""

from __future__ import annotations

from oslo_config import cfg

from scheduler_worker.scheduling.options import ALL_FILTERS, ALL_WEIGHERS, DEFAULT_FILTERS

SCHEDULER_OPTS = [
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        mutable=True,
        help="Hosts that a caller may try for an instance: the chosen one and up to "
        "max_attempts - 1 alternates.",
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
        mutable=True,
        help="The CPU architecture of images that name none, such as x86_64.",
    ),
    _multiplier("ram", 1.0, "hosts with more free memory"),
    _multiplier("cpu", 1.0, "hosts with more free vCPUs"),
    _multiplier("disk", 1.0, "hosts with more free local disk"),
    _multiplier("io_ops", -1.0, "hosts with more I/O operations under way"),
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
