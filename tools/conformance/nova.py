"""Converts Nova's recorded objects to ours, and builds pipelines as the worker does."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from oslo_config import cfg

from conformance.reading import Malformed
from scheduler_worker import codec
from scheduler_worker import conf as configuration
from scheduler_worker.compose.packages import registered
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.host_records import seconds
from scheduler_worker.model.host_reports import fields_of, merged
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.destination import RequestedDestination
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.service.policies.units import nova_pipeline

NOW_S = seconds("2026-01-02T03:05:00Z")
"""When the cases were recorded: the age of a report matters to some units."""
FILTERS = registered("scheduler_worker.filters")
WEIGHERS = registered("scheduler_worker.weighers")

NovaConfig = dict[str, Any]
"""Option overrides: ``filter_scheduler.host_subset_size`` -> value."""


class Host(msgspec.Struct, frozen=True):
    """A compute host as Nova's scheduler had read it."""

    compute_node: dict[str, Any]
    service: dict[str, Any] | None
    aggregates: list[dict[str, Any]]
    instances: list[str | dict[str, Any]]
    """Their uuids, or what is known of each."""
    cell_uuid: str
    allocation_candidates: list[dict[str, Any]]
    """The candidates of Placement on this host."""


class LowRandomSource:
    """A predictable random source: draws the first, shuffles nothing."""

    def randrange(self, start: int, /) -> int:
        return 0

    def shuffle(self, x: Any, /) -> None:
        pass


def options(config: NovaConfig) -> Options:
    """A configuration with these overrides, as the worker reads it. Raises Malformed."""
    return _options(msgspec.json.encode(config))


@cache
def _options(config: bytes) -> Options:
    """Many cases have the same ones."""
    conf = configuration.load()
    try:
        for key, value in msgspec.json.decode(config).items():
            group, _, name = key.rpartition(".")
            conf.set_override(name, value, group=group or None)
        return configuration.settings(conf).options
    except (cfg.Error, ValueError, ConfigError) as error:
        raise Malformed(f"config: {error}") from None


def pipeline(config: NovaConfig, *, filters: Sequence[str], weighers: Sequence[str]) -> Pipeline:
    """The pipeline of these units, without those that stand for Placement.

    Raises ConfigError for unknown names.
    """
    chosen = msgspec.structs.replace(
        options(config), enabled_filters=tuple(filters), weight_classes=tuple(weighers)
    )
    found = nova_pipeline(chosen, FILTERS, WEIGHERS)
    return Pipeline(
        found.policy,
        inventories=found.inventories,
        providers=found.providers,
        candidates=found.candidates,
        mandatory=[each for each in found.mandatory if isinstance(each, RequestedDestination)],
        filters=found.filters,
        weights=found.weights,
        selector=found.selector,
        options=found.options,
    )


def unknown(kind: str, names: Sequence[str], known: Mapping[str, type]) -> list[str]:
    """A difference for each unit that is not there."""
    return [f"unknown {kind} {name}" for name in names if name not in known]


def table(hosts: Sequence[Host]) -> HostTable:
    """Recorded hosts, in their order, as their reports make them."""
    found = HostTable()
    found.now_s = NOW_S
    aggregates = {}
    for version, host in enumerate(hosts, 1):
        plain = codec.plain(host.compute_node, "compute_node")
        plain |= {"service": host.service or {}, "cell_uuid": host.cell_uuid}
        [report] = codec.decode_host_reports([plain])
        fields = fields_of(report)
        stamp = {"nodename": fields["hypervisor_hostname"], "cluster": "c", "reported_at_s": NOW_S}
        record = merged(None, fields, **stamp)
        found.put(record, version)
        found.set_instances(record.host, dict(map(_instance, host.instances)))
        aggregates[record.host] = tuple(codec.decode_aggregates(host.aggregates))
    found.set_aggregates(aggregates)
    return found


def _instance(found: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return (found, {"uuid": found}) if isinstance(found, str) else (found["uuid"], found)
