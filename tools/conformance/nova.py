"""Nova's recorded objects as our words, and units that were registered as the worker finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from conformance.reading import Malformed
from scheduler_worker import conf as configuration
from scheduler_worker.app import registered
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.host_records import fields_of, merged, seconds
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.rpc import codec
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.service.units import build_pipeline

NOW_S = seconds("2026-01-02T03:05:00Z")
"""When the cases were recorded, for what depends on the age of a report."""
FILTERS = registered("scheduler_worker.filters")
WEIGHERS = registered("scheduler_worker.weighers")

NovaConfig = dict[str, Any]
"""Option overrides: ``filter_scheduler.host_subset_size`` -> value."""


class Host(msgspec.Struct, frozen=True):
    """A compute host as Nova's scheduler had read it."""

    compute_node: dict[str, Any]
    service: dict[str, Any] | None
    aggregates: list[dict[str, Any]]
    instances: list[str]
    cell_uuid: str
    allocation_candidates: list[dict[str, Any]]
    """What Placement offers on this host; none: it offers nothing."""


class LowDice:
    """Chance of which a case can know the outcome: the first is drawn, nothing is shuffled."""

    def randrange(self, start: int, /) -> int:
        return 0

    def shuffle(self, x: Any, /) -> None:
        pass


def options(config: NovaConfig) -> Options:
    """A configuration with these overrides, as the worker reads it. Raises Malformed."""
    conf = configuration.load()
    try:
        for key, value in config.items():
            group, _, name = key.rpartition(".")
            conf.set_override(name, value, group=group or None)
        return configuration.settings(conf).options
    except (cfg.Error, ValueError, ConfigError) as error:
        raise Malformed(f"config: {error}") from None


def pipeline(config: NovaConfig, *, filters: Sequence[str], weighers: Sequence[str]) -> Pipeline:
    """The pipeline of these units; what Placement decides was decided when a case was recorded.

    Raises ConfigError for names that nothing is known under.
    """
    chosen = msgspec.structs.replace(
        options(config), enabled_filters=tuple(filters), weight_classes=tuple(weighers)
    )
    found = build_pipeline(chosen, FILTERS, WEIGHERS)
    found.prefilters = ()
    return found


def unknown(kind: str, names: Sequence[str], known: Mapping[str, type]) -> list[str]:
    """A difference for each unit that is not there."""
    return [f"unknown {kind} {name}" for name in names if name not in known]


def table(hosts: Sequence[Host]) -> HostTable:
    """Recorded hosts, in their order, as their reports make them."""
    found = HostTable()
    found.now_s = NOW_S
    aggregates = {}
    for version, each in enumerate(hosts, 1):
        plain = codec.plain(each.compute_node, "compute_node")
        plain |= {"service": each.service or {}, "cell_uuid": each.cell_uuid}
        [report] = codec.decode_host_reports([plain])
        said = fields_of(report)
        stamp = {"nodename": said["hypervisor_hostname"], "cluster": "c", "reported_at_s": NOW_S}
        record = merged(None, said, **stamp)
        found.put(record, version)
        found.set_instances(record.host, {uuid: {"uuid": uuid} for uuid in each.instances})
        aggregates[record.host] = tuple(codec.decode_aggregates(each.aggregates))
    found.set_aggregates(aggregates)
    return found
