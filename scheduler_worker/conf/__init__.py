"""Every option, registered on a given ``ConfigOpts``, and the frozen settings built from them.

There is no global configuration: :func:`load` makes a ``ConfigOpts``, :func:`settings` reads it
once, and each package gets its own part of the frozen :class:`Settings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_log import log

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.backends.cage.settings import CageSettings
from scheduler_worker.backends.settings import PolicyStoreSettings, StateSettings
from scheduler_worker.conf import (
    api,
    balancing,
    decisions,
    default,
    dry_run,
    external_units,
    monitoring,
    nova_claims,
    nova_compat,
    nova_feed,
    policy_store,
    rpc,
    scheduling,
    state,
    tracing,
    trusted_computing,
    tuning,
    unknown,
)
from scheduler_worker.conf.configuration import Configuration
from scheduler_worker.errors import ConfigError
from scheduler_worker.monitoring.settings import MonitoringSettings, TracingSettings
from scheduler_worker.rpc.settings import RpcSettings
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.decisions.settings import DecisionSettings
from scheduler_worker.service.dry_run.settings import DryRunSettings
from scheduler_worker.service.inventory.settings import InventorySettings
from scheduler_worker.service.placement.asking import AskingSettings
from scheduler_worker.service.placement.claim_pool import ClaimSettings
from scheduler_worker.service.placement.dependencies import PlacementLimits
from scheduler_worker.service.policies.trust import AttestationService
from scheduler_worker.service.tuning.cycle import TuningSettings

__all__ = [
    "Configuration",
    "Settings",
    "inspected",
    "list_opts",
    "load",
    "notices",
    "register_opts",
    "settings",
    "unread",
    "unused",
]

_GROUPS: dict[str | None, list[Any]] = {
    None: default.OPTS,
    rpc.GROUP: rpc.OPTS,
    "state": state.STATE_OPTS,
    "cluster_lock": state.CLUSTER_LOCK_OPTS,
    "pending": state.PENDING_OPTS,
    policy_store.GROUP: policy_store.OPTS,
    "scheduler": scheduling.SCHEDULER_OPTS,
    "filter_scheduler": scheduling.FILTER_SCHEDULER_OPTS,
    "metrics": scheduling.METRICS_OPTS,
    "compute": scheduling.COMPUTE_OPTS,
    trusted_computing.GROUP: trusted_computing.OPTS,
    monitoring.GROUP: monitoring.OPTS,
    tuning.GROUP: tuning.OPTS,
    external_units.GROUP: external_units.OPTS,
    balancing.GROUP: balancing.OPTS,
    api.GROUP: api.OPTS,
    nova_claims.GROUP: nova_claims.OPTS,
    nova_feed.GROUP: nova_feed.OPTS,
    dry_run.GROUP: dry_run.OPTS,
    decisions.GROUP: decisions.OPTS,
    tracing.GROUP: tracing.OPTS,
    "api_database": nova_feed.API_DATABASE_OPTS,
    "database": nova_feed.DATABASE_OPTS,
}

_LEASE_BASE_S = 0.1
_LEASE_PER_REQUEST_S = 0.01
"""The shortest lease that a group commit needs: two round trips, and 10 ms for each request."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings, one part for each package. Times in seconds."""

    host: str
    default_cluster: str
    graceful_shutdown_timeout_s: float
    rpc: RpcSettings
    state: StateSettings
    policy_store: PolicyStoreSettings
    placement: PlacementLimits
    inventory: InventorySettings
    monitoring: MonitoringSettings
    attestation: AttestationService | None
    tuning: TuningSettings
    external_units: CageSettings | None
    """None: there are no units from files."""
    balancing: BalancingSettings
    api: ApiSettings
    claims: ClaimSettings | None
    """None: hosts are not claimed in Placement."""
    asking: AskingSettings
    """How Placement is asked for allocation candidates, where it is read."""
    nova_feed: nova_feed.NovaFeed | None
    """None: hosts do not come from Nova's databases."""
    dry_run: DryRunSettings | None
    """None: the worker serves."""
    decisions: DecisionSettings | None
    """None: no records of decisions are kept."""
    tracing: TracingSettings | None
    """None: requests are not traced."""
    options: Options

    @property
    def is_dry_run(self) -> bool:
        """Whether the worker decides on copies, and serves nobody."""
        return self.dry_run is not None

    @property
    def asks_placement(self) -> bool:
        """Whether anything is read of Placement, or written to it."""
        reads = self.nova_feed is not None and self.nova_feed.providers is not None
        return reads or self.claims is not None


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register our options, those of oslo.log, and what else a nova.conf may contain."""
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=group)
    log.register_options(conf)


def list_opts() -> list[tuple[str | None, list[Any]]]:
    """All our options, for ``oslo-config-generator``."""
    return list(_GROUPS.items())


def load(
    args: Sequence[str] = (), *, cli_opts: Sequence[Any] = (), prog: str = "scheduler-worker"
) -> Configuration:
    """Parse a command line and the files it names."""
    return Configuration(register_opts, args, cli_opts, prog)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Build the settings from the current values of the options.

    Raises:
        ConfigError: values out of bounds, all of them; or options that contradict each other.
    """
    if problems := [problem for *_, problem in _invalid(conf, list_opts())]:
        raise ConfigError("; ".join(problems))
    found = _read(conf)
    if problems := list(_contradictions(found)):
        raise ConfigError("; ".join(problems))
    return found


def inspected(conf: Configuration, others: unknown.Listed = ()) -> tuple[Settings, list[str]]:
    """The settings as far as they can be read, and every problem with the options.

    For diagnosis only: in ``conf``, each invalid value is replaced by its default. ``others`` are
    options that libraries read.
    """
    for group, opts in others:
        conf.register_opts(opts, group=group)
    problems = []
    for group, opt, problem in list(_invalid(conf, [*list_opts(), *others])):
        conf.set_override(opt.dest, opt.default, group=group)
        problems.append(problem)
    found = _read(conf)
    return found, [*problems, *_contradictions(found)]


def unread(conf: Configuration, others: unknown.Listed = ()) -> list[str]:
    """Sentences about options and groups in the files that nothing reads, such as typing errors.

    ``others`` are options that libraries read, beside those of oslo.config and oslo.log.
    """
    libraries = unknown.of_libraries("oslo.config", "oslo.log")
    others = [*others, (None, conf.cli_opts), *libraries, *balancing.of_target(conf)]
    return unknown.unknown(conf, list_opts(), others)


def unused(conf: Configuration) -> list[str]:
    """Sentences about options that are accepted and have no effect."""
    return nova_compat.unused(conf)


def notices(conf: Configuration, others: unknown.Listed = ()) -> list[str]:
    """Sentences about options that do not do what they seem to; ``others`` as in `inspected`."""
    for group, opts in others:
        conf.register_opts(opts, group=group)
    found = [*nova_compat.undecided(conf), *nova_compat.unmirrored(conf)]
    if conf.service_down_time != (used_s := default.service_down_time_s(conf)):
        found.append(
            f"[DEFAULT] service_down_time is taken as {used_s:g} s: {conf.service_down_time:g} s "
            f"is not longer than report_interval ({conf.report_interval} s)"
        )
    return found


def _read(conf: cfg.ConfigOpts) -> Settings:
    down_after_s = default.service_down_time_s(conf)
    return Settings(
        host=conf.host,
        default_cluster=conf.default_cluster,
        graceful_shutdown_timeout_s=conf.graceful_shutdown_timeout,
        rpc=rpc.settings(conf),
        state=state.settings(conf),
        policy_store=policy_store.settings(conf),
        placement=state.limits(conf, max_attempts=conf.scheduler.max_attempts),
        inventory=default.inventory(conf),
        monitoring=monitoring.settings(conf),
        attestation=trusted_computing.settings(conf),
        tuning=tuning.settings(conf, silent_after_s=down_after_s),
        external_units=external_units.settings(conf),
        balancing=balancing.settings(conf, down_after_s=down_after_s),
        api=api.settings(conf),
        claims=nova_claims.settings(conf),
        asking=nova_feed.asking(conf),
        nova_feed=nova_feed.settings(
            conf, silent_after_s=down_after_s, default_cluster=conf.default_cluster
        ),
        dry_run=dry_run.settings(conf),
        decisions=decisions.settings(conf),
        tracing=tracing.settings(conf),
        options=scheduling.options(
            conf,
            service_down_time_s=down_after_s,
            default_availability_zone=conf.default_availability_zone,
        ),
    )


def _invalid(conf: cfg.ConfigOpts, listed: unknown.Listed) -> Iterator[tuple[str | None, Any, str]]:
    """Group, option and problem of each invalid value; the problem has the name and the bound."""
    for group, opts in listed:
        for opt in opts:
            try:
                value = conf[group][opt.dest] if group else conf[opt.dest]
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"{value} is no finite number")
            except (cfg.Error, ValueError) as error:
                reason = error.__context__ or error
                yield group, opt, f"[{group or 'DEFAULT'}] {opt.name}: {reason}"


def _contradictions(found: Settings) -> Iterator[str]:
    """A sentence for each pair of options that cannot work together."""
    limits = found.placement
    needed_s = _LEASE_BASE_S + _LEASE_PER_REQUEST_S * limits.max_batch
    if limits.hold_timeout_s < needed_s:
        yield (
            f"[cluster_lock] hold_timeout: {limits.hold_timeout_s:g} s is too short for "
            f"max_batch = {limits.max_batch} requests, which need {needed_s:g} s; raise it or "
            "lower max_batch"
        )
    if found.nova_feed is not None and not found.nova_feed.databases.api_connection:
        yield (
            "[nova_feed] enabled needs [api_database] connection, which is not set; write it as in "
            "nova.conf"
        )
    yield from _contradictions_of_dry_run(found)
    units = found.external_units
    if units is not None and units.timeout_s >= limits.hold_timeout_s:
        yield (
            f"[external_units] timeout: {units.timeout_s:g} s must be shorter than [cluster_lock] "
            f"hold_timeout ({limits.hold_timeout_s:g} s), which ends the lease of a decision"
        )
    if limits.reservation_ttl_s <= limits.hold_timeout_s:
        yield (
            f"[pending] ttl: {limits.reservation_ttl_s:g} s must be longer than [cluster_lock] "
            f"hold_timeout ({limits.hold_timeout_s:g} s), or reservations expire before they are "
            "answered"
        )


def _contradictions_of_dry_run(found: Settings) -> Iterator[str]:
    if found.dry_run is None:
        return
    if found.nova_feed is None:
        yield "[dry_run] enabled needs [nova_feed] enabled: that shows where Nova put an instance"
    if found.claims is not None:
        yield (
            "[dry_run] enabled and [nova_claims] enabled exclude each other: a worker that answers "
            "nobody must claim nothing"
        )
