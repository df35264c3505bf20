"""The bus, and what sends over it: the balancer; traces."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.extras import needing_extra
from scheduler_worker.factories.nova import nova_target
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, ClusterLock, Publisher
from scheduler_worker.rpc.settings import RpcSettings
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.agent import AgentTarget
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet

if TYPE_CHECKING:
    from scheduler_worker.backends.nova.compute_api import ComputeApi
    from scheduler_worker.monitoring.tracing import Tracing

_EXPORT_S = 10.0
"""For how long a batch of traces is tried to be sent."""


def open_bus(conf: Configuration, settings: RpcSettings) -> Bus:
    """Open the bus of ``transport_url``, or the one inside this process where none is set."""
    return Bus(conf, exchange=settings.exchange)


def build_balancing(
    settings: Settings, fleet: Fleet, pipelines: Callable[[], Pipelines]
) -> BalancingAdministration:
    """The use cases of administrators about balancing."""
    return BalancingAdministration(
        fleet, lambda: pipelines().nova_policy, default_mode=settings.balancing.mode
    )


def build_balancer(
    settings: Settings,
    fleet: Fleet,
    lock: ClusterLock,
    pipelines: Callable[[], Pipelines],
    publisher: Publisher,
    clock: Clock,
    observer: Observer,
    nova: "ComputeApi | None" = None,
) -> Balancer:
    """The balancer with its targets, ``nova`` for migrations if that is given; not started."""
    balancing = settings.balancing
    return Balancer(
        fleet,
        pipelines,
        AgentTarget(publisher, balancing.agent_topic) if nova is None else nova_target(nova),
        clock,
        lock=lock,
        power_target=AgentTarget(publisher, balancing.agent_topic),
        settings=balancing,
        observer=observer,
        name=settings.host,
    )


def open_tracing(settings: Settings) -> "Callable[[Callable[[str, int], None]], Tracing] | None":
    """What makes the traces of requests, given what counts them; None: there are none.

    Raises ConfigError where OpenTelemetry is not installed.
    """
    if settings.tracing is None:
        return None
    with needing_extra("tracing", "[tracing] enabled"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from scheduler_worker.monitoring.tracing import Tracing
    exporter = OTLPSpanExporter(endpoint=settings.tracing.endpoint, timeout=_EXPORT_S)
    return partial(Tracing, exporter, worker=settings.host, ratio=settings.tracing.ratio)
