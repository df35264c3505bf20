"""A cluster as the evaluator sees it, and what it says taken apart by host. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.tuner_memory import HostMemory, remembered, rows_of
from scheduler_worker.service.tuner_statistics import Averaging, Rows, sample_of, vms_of
from scheduler_worker.tuning.document import Scope
from scheduler_worker.tuning.samples import Entity, Memory, Sample, Value

Values = dict[str, float]
"""Output -> what it is to be set to."""


class Orders(msgspec.Struct, frozen=True):
    """What an agent is told."""

    outputs: Values
    vms: dict[str, Values]
    disks: dict[str, dict[str, Values]]


class View(NamedTuple):
    """Everything by the uuid of the host."""

    records: dict[str, HostRecord]
    samples: dict[str, Sample]
    rows: dict[str, dict[Entity, Rows]]
    """What averages are over, for each entity of the host."""

    def orders(self, changes: Mapping[Entity, Values]) -> dict[str, Orders]:
        """The changes by host; a host without any has no entry."""
        found: dict[str, Orders] = {}
        for host, rows in self.rows.items():
            for entity in rows.keys() & changes.keys():
                made = found.setdefault(host, Orders({}, {}, {}))
                if entity.scope == Scope.HOST:
                    made.outputs.update(changes[entity])
                elif entity.scope == Scope.VM:
                    made.vms[entity.name] = changes[entity]
                else:
                    made.disks.setdefault(entity.name, {})[entity.device] = changes[entity]
        return found

    def memory_of(self, host: str, memory: Memory, told_at_s: float) -> HostMemory:
        """What is to be remembered of a host; nothing of who is no longer there."""
        reported_at_s = self.records[host].reported_at_s
        return HostMemory(reported_at_s, told_at_s, remembered(memory, self.rows[host]))


def view(
    records: Iterable[HostRecord],
    memories: Mapping[str, HostMemory],
    averaging: Averaging,
    parameters: Mapping[str, Value],
) -> View:
    """What the reports say, with averages over what is remembered of those before."""
    latest = sorted(records, key=lambda record: record.reported_at_s)
    # A VM that two hosts report, while it migrates, is where it was reported last.
    home = {vm: record.uuid for record in latest for vm, _ in vms_of(record)}
    kept = rows_of(memories.values())
    found = View({}, {}, {})
    for record in latest:
        host = record.uuid
        known = memories.get(host)
        vms = [vm for vm, _ in vms_of(record) if home[vm] == host]
        found.records[host] = record
        found.samples[host] = sample = sample_of(record, parameters, vms)
        found.rows[host] = averaging.over(
            host, sample, kept, is_new=known is None or record.reported_at_s > known.reported_at_s
        )
    return found
