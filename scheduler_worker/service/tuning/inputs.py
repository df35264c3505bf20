"""The evaluator's inputs for a cluster, and its outputs for each host. Values only, no I/O."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.tuning.records import SetBy, TunedHostState, entity_states
from scheduler_worker.service.tuning.statistics import sample_of, vms_of
from scheduler_worker.tuning.averages import MovingAverages, Windows
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample, Value
from scheduler_worker.tuning.tuning_policy import Scope

Values = dict[str, float]
"""Output -> the value to set."""


class HostOutputs(msgspec.Struct, frozen=True):
    """The values that a host's agent is to set; the fields are arguments of the cast."""

    outputs: Values
    vms: dict[str, Values]
    disks: dict[str, dict[str, Values]]


class ClusterInputs(NamedTuple):
    """The inputs of a cluster's evaluation, by the uuid of the host."""

    records: dict[str, HostRecord]
    samples: dict[str, Sample]
    windows: dict[str, dict[Entity, Windows]]
    """The windows of averages; every entity of the host has an entry, if an empty one."""

    def outputs(self, changes: Mapping[Entity, Values]) -> dict[str, HostOutputs]:
        """Return the changes by host; a host without changes has no entry."""
        outputs: dict[str, HostOutputs] = {}
        for host, windows in self.windows.items():
            for entity in windows.keys() & changes.keys():
                made = outputs.setdefault(host, HostOutputs({}, {}, {}))
                if entity.scope == Scope.HOST:
                    made.outputs.update(changes[entity])
                elif entity.scope == Scope.VM:
                    made.vms[entity.name] = changes[entity]
                else:
                    made.disks.setdefault(entity.name, {})[entity.device] = changes[entity]
        return outputs

    def host_state(
        self,
        host: str,
        state: EvaluatorState,
        set_by: Mapping[Entity, dict[str, SetBy]],
        notified_at_s: float,
    ) -> TunedHostState:
        """Return the state to keep of a host; entities that left it are dropped."""
        entities = entity_states(state, self.windows[host], set_by)
        return TunedHostState(self.records[host].reported_at_s, notified_at_s, entities)


def cluster_inputs(
    records: Iterable[HostRecord],
    states: Mapping[str, TunedHostState],
    averages: MovingAverages,
    parameters: Mapping[str, Value],
) -> ClusterInputs:
    """Return the inputs from the hosts' reports, with averages over the earlier reports too."""
    latest = sorted(records, key=lambda record: record.reported_at_s)
    # While a VM migrates two hosts may report it; it belongs to the one that reported last.
    home = {vm: record.uuid for record in latest for vm, _ in vms_of(record)}
    # Of all hosts: a VM that migrated here keeps the windows from its former host.
    entities = (entity for state in states.values() for entity in state.entities)
    windows = {entity.entity: entity.windows for entity in entities}
    inputs = ClusterInputs({}, {}, {})
    for record in latest:
        host = record.uuid
        state = states.get(host)
        vms = [vm for vm, _ in vms_of(record) if home[vm] == host]
        inputs.records[host] = record
        inputs.samples[host] = sample = sample_of(record, parameters, vms)
        inputs.windows[host] = averages.add_to(
            sample,
            host,
            windows,
            is_new=state is None or record.reported_at_s > state.reported_at_s,
        )
    return inputs
