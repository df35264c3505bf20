"""The configuration: files into the frozen settings that packages declare.

Each package declares its options, as annotated fields of its settings (``options.py``). There is no
global configuration: :func:`load` makes a ``ConfigOpts``, :func:`settings` reads it once, and each
package gets its own part of the frozen :class:`Settings`.
"""

import contextlib
import math
import socket
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from oslo_config import cfg
from oslo_log import log

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.backends.sandbox.settings import SandboxSettings
from scheduler_worker.backends.settings import PolicyStoreSettings, StateSettings, earlier_file
from scheduler_worker.conf import nova_compat, unknown
from scheduler_worker.conf.declared import Listed, Table
from scheduler_worker.conf.nova_compat import unused as unused
from scheduler_worker.configuration import Configuration as Configuration
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.aggregates import DEFAULT_CLUSTER
from scheduler_worker.monitoring.settings import MonitoringSettings, TracingSettings
from scheduler_worker.options import Opt
from scheduler_worker.rpc.settings import RpcSettings
from scheduler_worker.scheduling.filters.aggregates import ImageIsolationParameters, ZoneParameters
from scheduler_worker.scheduling.filters.capacity import IoOpsParameters, NumInstancesParameters
from scheduler_worker.scheduling.filters.image_properties import ArchitectureParameters
from scheduler_worker.scheduling.filters.isolated_hosts import IsolatedHostsParameters
from scheduler_worker.scheduling.options import Multipliers, Options
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters
from scheduler_worker.scheduling.selections import PlacementOptions
from scheduler_worker.scheduling.selectors import ChoiceParameters
from scheduler_worker.scheduling.weighers.image_properties import ImagePropertiesParameters
from scheduler_worker.scheduling.weighers.metrics import MetricsParameters
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.decisions.recorder import DecisionSettings
from scheduler_worker.service.feed.settings import FeedSettings, ProviderSettings
from scheduler_worker.service.inventory.reports import HeartbeatSettings, InventorySettings
from scheduler_worker.service.policies.trust import AttestationService
from scheduler_worker.service.requests.allocation_candidates import AskingSettings
from scheduler_worker.service.requests.claim_batcher import ClaimSettings
from scheduler_worker.service.requests.comparison import DryRunSettings
from scheduler_worker.service.requests.dependencies import PlacementLimits
from scheduler_worker.service.tuning.cycle import TuningSettings

_RANKED_HOSTS = 5
"""How many of the best hosts a record of a decision names."""
_LEASE_BASE_S = 0.1
_LEASE_PER_REQUEST_S = 0.01
"""The shortest lease that a group commit needs: two round trips, and 10 ms for each request."""


class NovaFeed(msgspec.Struct, frozen=True, kw_only=True):
    """How Nova is read."""

    feed: FeedSettings
    databases: NovaDatabasesSettings
    providers: ProviderSettings | None
    """None: Placement is not read."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings, one part for each package. Times in seconds."""

    host: Annotated[
        str, Opt(regex=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$", sample_default="<current hostname>")
    ] = socket.gethostname()
    """Name of this worker as an RPC server. It must be unique among the replicas and should stay
    the same over restarts, since it names a queue."""
    default_cluster: Annotated[str, Opt(regex=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")] = (
        DEFAULT_CLUSTER
    )
    """The cluster of hosts whose reports do not name one."""
    graceful_shutdown_timeout_s: Annotated[float, Opt(min=0)] = 60.0
    """Seconds a stopping worker has to finish the requests it has taken. Unfinished ones go back to
    the queue for other workers; on the embedded bus, which ends with the process, they are dropped,
    and their reservations are given back."""
    rpc: RpcSettings
    state: StateSettings
    policy_store: PolicyStoreSettings
    placement: PlacementLimits
    inventory: InventorySettings
    monitoring: MonitoringSettings
    attestation: AttestationService | None
    tuning: TuningSettings
    external_units: SandboxSettings | None
    """None: there are no units from files."""
    balancing: BalancingSettings
    api: ApiSettings
    claims: ClaimSettings | None
    """None: hosts are not claimed in Placement."""
    asking: AskingSettings
    """How Placement is asked for allocation candidates, where it is read."""
    nova_feed: NovaFeed | None
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


TABLE = Table(
    DEFAULT=(Settings, InventorySettings, HeartbeatSettings, ZoneParameters),
    rpc=(RpcSettings,),
    state=(StateSettings,),
    cluster_lock=(PlacementLimits,),
    policy_store=(PolicyStoreSettings,),
    scheduler=(AskingSettings, RequestFilterParameters),
    filter_scheduler=(
        Options,
        ChoiceParameters,
        ArchitectureParameters,
        IoOpsParameters,
        NumInstancesParameters,
        IsolatedHostsParameters,
        ImageIsolationParameters,
        Multipliers,
        ImagePropertiesParameters,
    ),
    metrics=(MetricsParameters,),
    compute=(PlacementOptions,),
    trusted_computing=(AttestationService,),
    monitoring=(MonitoringSettings,),
    tuning=(TuningSettings,),
    external_units=(SandboxSettings,),
    balancing=(BalancingSettings,),
    api=(ApiSettings,),
    nova_claims=(ClaimSettings,),
    nova_feed=(FeedSettings, NovaDatabasesSettings, ProviderSettings),
    dry_run=(DryRunSettings,),
    decisions=(DecisionSettings,),
    tracing=(TracingSettings,),
)
"""Whose options are in which group."""
_GROUPS = {"scheduler", "filter_scheduler", "metrics", "compute"}
_OF_UNITS = [
    each for each in TABLE.declared if each.group in _GROUPS and each.struct is not Options
]
"""What units read by the name of the field, and the policy's version depends on."""


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the worker's options, oslo.log's, and what else a nova.conf may contain."""
    for group, opts in TABLE.options:
        conf.register_opts(opts, group=group)
    log.register_options(conf)


def list_opts() -> Listed:
    """All our options with their help texts, for ``oslo-config-generator``."""
    return TABLE.with_help


def load(
    args: Sequence[str] = (), *, cli_opts: Sequence[Any] = (), prog: str = "scheduler-worker"
) -> Configuration:
    """Parse a command line and the files it names."""
    return Configuration(register_opts, args, cli_opts, prog)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Build the settings from the current values of the options.

    Raises ConfigError: values out of bounds, all of them; or options that contradict each other.
    """
    if problems := [problem for *_, problem in _invalid(conf, TABLE.options)]:
        raise ConfigError("; ".join(problems))
    current = _read(conf)
    if problems := list(_contradictions(current)):
        raise ConfigError("; ".join(problems))
    return current


def inspected(conf: Configuration) -> tuple[Settings, list[str]]:
    """The settings as far as they can be read, and every problem with the options.

    For diagnosis only: in ``conf``, each invalid value is replaced by its default.
    """
    problems = []
    for group, opt, problem in list(_invalid(conf, [*TABLE.options, *_of_bus(conf)])):
        conf.set_override(opt.dest, opt.default, group=group)
        problems.append(problem)
    current = _read(conf)
    return current, [*problems, *_contradictions(current)]


def unread(conf: Configuration) -> list[str]:
    """Sentences about options and groups that are set and nothing reads, such as typing errors."""
    libraries = [*_of_bus(conf), *unknown.of_libraries("oslo.config", "oslo.log")]
    foreign = [*libraries, (None, conf.cli_opts), *_of_nova(conf)]
    return unknown.unknown(conf, TABLE.options, foreign)


def _of_bus(conf: Configuration) -> Listed:
    """The options that the bus reads, which are registered."""
    from scheduler_worker.rpc import transport  # is slow to import, and many commands do without

    for group, opts in (listed := transport.list_opts()):
        conf.register_opts(opts, group=group)
    return listed


def _of_nova(conf: Configuration) -> list[tuple[str, list[Any]]]:
    """The options of ``[nova]``: none where nobody asks Nova, or its library is missing."""
    if conf.balancing.target == "nova":
        # The missing library is reported where it is used.
        with contextlib.suppress(ImportError):
            from scheduler_worker.backends.nova import options

            return options.read(conf)
    return [("nova", [])]


def notices(conf: Configuration) -> list[str]:
    """Sentences about options that do not do what they seem to."""
    _of_bus(conf)
    sentences = [*nova_compat.undecided(conf), *nova_compat.unmirrored(conf)]
    sentences += [
        f"[{each.group}] {each.name}: {item!r} is left out, for it is no name=number; correct it"
        for each in TABLE.declared
        for item in each.left_out(conf)
    ]
    used_s = TABLE.read(conf, HeartbeatSettings).down_after_s
    if conf.service_down_time != used_s:
        sentences.append(
            f"[DEFAULT] service_down_time is taken as {used_s:g} s: {conf.service_down_time:g} s "
            f"is not longer than report_interval ({conf.report_interval} s)"
        )
    return sentences


def _read(conf: cfg.ConfigOpts) -> Settings:
    """What the options say; here is given what a part needs beside its own options."""
    down_after_s = TABLE.read(conf, HeartbeatSettings).down_after_s
    role, subset_size = conf.rpc.caller_role, conf.filter_scheduler.host_subset_size
    dry_run = TABLE.read(conf, DryRunSettings, subset_size=subset_size)
    of_units = {
        "service_down_time_s": down_after_s,
        "default_availability_zone": conf.default_availability_zone,
        "claims_in_placement": conf.nova_claims.enabled,
        "ranked_hosts": _RANKED_HOSTS if conf.decisions.enabled else 0,
    } | {of_unit.field.name: of_unit.value(conf) for of_unit in _OF_UNITS}
    return TABLE.read(
        conf,
        Settings,
        rpc=TABLE.read(conf, RpcSettings, caller_role=None if role == "none" else role),
        state=TABLE.read(conf, StateSettings, hold_timeout_s=conf.cluster_lock.hold_timeout),
        tuning=TABLE.read(
            conf,
            TuningSettings,
            interval_s=conf.tuning.interval if conf.tuning.enabled else 0.0,
            silent_after_s=down_after_s,
        ),
        balancing=TABLE.read(conf, BalancingSettings, down_after_s=down_after_s),
        asking=TABLE.read(
            conf,
            AskingSettings,
            workers=conf.nova_feed.placement_connections,
            timeout_s=conf.nova_claims.timeout,
        ),
        policy_store=TABLE.read(
            conf,
            PolicyStoreSettings,
            connection=conf.policy_store.connection or earlier_file(),
        ),
        nova_feed=_nova_feed(conf, down_after_s) if conf.nova_feed.enabled else None,
        dry_run=dry_run if dry_run.enabled else None,
        options=TABLE.read(conf, Options, values=of_units),
    )


def _nova_feed(conf: cfg.ConfigOpts, silent_after_s: float) -> NovaFeed:
    cluster, url = conf.default_cluster, conf.api_database.connection or ""
    return TABLE.read(
        conf,
        NovaFeed,
        feed=TABLE.read(conf, FeedSettings, silent_after_s=silent_after_s, default_cluster=cluster),
        databases=TABLE.read(conf, NovaDatabasesSettings, api_connection=url),
    )


def _invalid(conf: cfg.ConfigOpts, listed: Listed) -> Iterator[tuple[str | None, Any, str]]:
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


def _contradictions(settings: Settings) -> Iterator[str]:
    """A sentence for each pair of options that cannot work together."""
    limits = settings.placement
    needed_s = _LEASE_BASE_S + _LEASE_PER_REQUEST_S * limits.max_batch
    if limits.hold_timeout_s < needed_s:
        yield (
            f"[cluster_lock] hold_timeout: {limits.hold_timeout_s:g} s is too short for "
            f"max_batch = {limits.max_batch} requests, which need {needed_s:g} s; raise it or "
            "lower max_batch"
        )
    if settings.nova_feed is not None and not settings.nova_feed.databases.api_connection:
        yield (
            "[nova_feed] enabled needs [api_database] connection, which is not set; write it as in "
            "nova.conf"
        )
    if settings.dry_run is not None and settings.nova_feed is None:
        yield "[dry_run] enabled needs [nova_feed] enabled: that shows where Nova put an instance"
    if settings.dry_run is not None and settings.claims is not None:
        yield (
            "[dry_run] enabled and [nova_claims] enabled exclude each other: a worker that answers "
            "nobody must claim nothing"
        )
    units = settings.external_units
    if units is not None and units.timeout_s > limits.hold_timeout_s / 2:
        yield (
            f"[external_units] timeout: {units.timeout_s:g} s must be at most half of "
            f"[cluster_lock] hold_timeout ({limits.hold_timeout_s:g} s): the units of a decision "
            "have that half, and the commit has the other"
        )
    if limits.reservation_ttl_s <= limits.hold_timeout_s:
        yield (
            f"[pending] ttl: {limits.reservation_ttl_s:g} s must be longer than [cluster_lock] "
            f"hold_timeout ({limits.hold_timeout_s:g} s), or reservations expire before they are "
            "answered"
        )
