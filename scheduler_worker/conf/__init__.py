"""Every option, registered on a given ``ConfigOpts``, and the frozen settings made of them.

There is no global configuration: :func:`load` makes a ``ConfigOpts``, :func:`settings` reads it
once, and what goes down to the other rooms is a frozen :class:`Settings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from oslo_config import cfg
from oslo_log import log

from scheduler_worker import __version__
from scheduler_worker.conf import (
    default,
    monitoring,
    nova_compat,
    rpc,
    scheduling,
    state,
    trusted_computing,
    tuning,
)
from scheduler_worker.errors import ConfigError
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.trust import AttestationService
from scheduler_worker.service.tuner_cycle import TuningSettings

_GROUPS: dict[str | None, list[Any]] = {
    None: default.OPTS,
    rpc.GROUP: rpc.OPTS,
    "state": state.STATE_OPTS,
    "cluster_lock": state.CLUSTER_LOCK_OPTS,
    "pending": state.PENDING_OPTS,
    "scheduler": scheduling.SCHEDULER_OPTS,
    "filter_scheduler": scheduling.FILTER_SCHEDULER_OPTS,
    "metrics": scheduling.METRICS_OPTS,
    "compute": scheduling.COMPUTE_OPTS,
    trusted_computing.GROUP: trusted_computing.OPTS,
    monitoring.GROUP: monitoring.OPTS,
    tuning.GROUP: tuning.OPTS,
}

_HOLD_BASE_S = 0.1
_HOLD_PER_REQUEST_S = 0.01
"""What a batch needs of its hold, at least: two round trips, and 10 ms for each request."""
_REPORTS_BEFORE_DOWN = 2.5
"""How many reports of a host are missing before it counts as down, at least."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is told, checked. Times in seconds."""

    host: str
    default_cluster: str
    clusters: tuple[str, ...]
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    graceful_shutdown_timeout_s: float
    topic: str
    exchange: str
    slots: int
    server: str
    max_deliveries: int
    max_message_bytes: int
    state_url: str
    state_prefix: str
    refresh_interval_s: float
    acquire_timeout_s: float
    hold_timeout_s: float
    offer_timeout_s: float
    max_batch: int
    ordering: Literal["priority", "fifo"]
    max_head_start_s: float
    promise_ttl_s: float
    wait_timeout_s: float
    max_waiting: int
    max_promises: int
    remember_answers_s: float
    wait_replicas: int
    monitoring_address: str
    monitoring_port: int
    stalled_after_s: float
    max_log_line: int
    dump_dir: str | None
    attestation: AttestationService | None
    tuning: TuningSettings
    options: Options


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register all options of ours, those of oslo.log, and what else a nova.conf may carry."""
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=group)
    nova_compat.register_opts(conf)
    log.register_options(conf)


def list_opts() -> list[tuple[str | None, list[Any]]]:
    """All options of ours, for ``oslo-config-generator``."""
    return list(_GROUPS.items())


def load(
    args: Sequence[str] = (), *, cli_opts: Sequence[Any] = (), prog: str = "scheduler-worker"
) -> cfg.ConfigOpts:
    """Parse a command line and the files it names into a new ``ConfigOpts``."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf.register_cli_opts(cli_opts)
    conf(list(args), project="scheduler_worker", prog=prog, version=__version__)
    return conf


def settings(conf: cfg.ConfigOpts) -> Settings:
    """The settings as the options stand now.

    Raises:
        ConfigError: values out of bounds, all of them; or options that cannot work together.
    """
    if problems := list(_problems(conf)):
        raise ConfigError("; ".join(problems))
    read = _read(conf)
    needed_s = _HOLD_BASE_S + _HOLD_PER_REQUEST_S * read.max_batch
    if read.hold_timeout_s < needed_s:
        raise ConfigError(
            f"[cluster_lock] hold_timeout: {read.hold_timeout_s:g} s is too short for batches of "
            f"{read.max_batch} requests, which need {needed_s:g} s; raise it or lower max_batch"
        )
    if read.promise_ttl_s <= read.hold_timeout_s:
        raise ConfigError(
            f"[pending] ttl: {read.promise_ttl_s:g} s must be longer than [cluster_lock] "
            f"hold_timeout ({read.hold_timeout_s:g} s), or promises end before they are answered"
        )
    return read


def notices(conf: cfg.ConfigOpts) -> list[str]:
    """Sentences for the operator about options that do not do what they seem to."""
    found = nova_compat.unused(conf) + nova_compat.undecided(conf)
    if conf.service_down_time != (used_s := _service_down_time_s(conf)):
        found.append(
            f"[DEFAULT] service_down_time is taken as {used_s:g} s: {conf.service_down_time:g} s "
            f"is not longer than report_interval ({conf.report_interval} s)"
        )
    return found


def _problems(conf: cfg.ConfigOpts) -> Iterator[str]:
    """What is wrong with single values, each with the option's group, name and bound."""
    for group, opts in _GROUPS.items():
        for opt in opts:
            try:
                value = conf[group][opt.dest] if group else conf[opt.dest]
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(f"{value} is no finite number")
            except (cfg.Error, ValueError) as error:
                reason = error.__context__ or error
                yield f"[{group or 'DEFAULT'}] {opt.name}: {reason}"


def _service_down_time_s(conf: cfg.ConfigOpts) -> float:
    """A host must be able to report before it counts as down."""
    if conf.service_down_time <= conf.report_interval:
        return float(int(_REPORTS_BEFORE_DOWN * conf.report_interval))
    return float(conf.service_down_time)


def _read(conf: cfg.ConfigOpts) -> Settings:
    def ratio(kind: str) -> float:
        return float(
            conf[f"{kind}_allocation_ratio"] or conf[f"initial_{kind}_allocation_ratio"] or 1.0
        )

    return Settings(
        host=conf.host,
        default_cluster=conf.default_cluster,
        clusters=tuple(conf.clusters),
        cpu_allocation_ratio=ratio("cpu"),
        ram_allocation_ratio=ratio("ram"),
        disk_allocation_ratio=ratio("disk"),
        graceful_shutdown_timeout_s=conf.graceful_shutdown_timeout,
        topic=conf.rpc.topic,
        exchange=conf.rpc.exchange,
        slots=conf.rpc.slots,
        server=conf.rpc.server,
        max_deliveries=conf.rpc.max_deliveries,
        max_message_bytes=conf.rpc.max_message_bytes,
        state_url=conf.state.url,
        state_prefix=conf.state.prefix,
        refresh_interval_s=conf.state.refresh_interval,
        acquire_timeout_s=conf.cluster_lock.acquire_timeout,
        hold_timeout_s=conf.cluster_lock.hold_timeout,
        offer_timeout_s=conf.cluster_lock.offer_timeout,
        max_batch=conf.cluster_lock.max_batch,
        ordering=conf.cluster_lock.ordering,
        max_head_start_s=conf.cluster_lock.max_head_start,
        promise_ttl_s=conf.pending.ttl,
        wait_timeout_s=conf.pending.wait_timeout,
        max_waiting=conf.pending.max_waiting,
        max_promises=conf.pending.max_per_cluster,
        remember_answers_s=conf.pending.remember_answers,
        wait_replicas=conf.state.wait_replicas,
        monitoring_address=conf.monitoring.address,
        monitoring_port=conf.monitoring.port,
        stalled_after_s=conf.monitoring.stalled_after,
        max_log_line=conf.monitoring.max_log_line,
        dump_dir=conf.monitoring.dump_dir,
        attestation=trusted_computing.settings(conf),
        tuning=tuning.settings(conf, silent_after_s=_service_down_time_s(conf)),
        options=_options(conf),
    )


def _options(conf: cfg.ConfigOpts) -> Options:
    """Judgement's options; most carry the same names there."""
    groups = {
        "scheduler": scheduling.SCHEDULER_OPTS,
        "filter_scheduler": scheduling.FILTER_SCHEDULER_OPTS,
        "compute": scheduling.COMPUTE_OPTS,
    }
    named: dict[str, Any] = {
        opt.dest: conf[group][opt.dest] for group, opts in groups.items() for opt in opts
    }
    named |= {f"metrics_{opt.dest}": conf.metrics[opt.dest] for opt in scheduling.METRICS_OPTS}
    named |= {
        "service_down_time_s": _service_down_time_s(conf),
        "default_availability_zone": conf.default_availability_zone,
    }
    return msgspec.convert(named, Options)
