"""One tuning cycle of a cluster: read reports, evaluate, send values to the agents, write state.

Values are sent before the state is written. If the worker dies in between, the next one evaluates
from the old state and sends the same values again. Values that could not be sent do not count as
emitted.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import BusUnavailable, Undeliverable
from scheduler_worker.model.host_records import HostRecord, is_silent
from scheduler_worker.observer import Observer
from scheduler_worker.options import Opt
from scheduler_worker.ports import Clock, Publisher
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.records import (
    HostStates,
    SetBy,
    TunedHostState,
    TuningLeadership,
    entity_states,
    evaluator_state,
)
from scheduler_worker.service.tuning.statistics import sample_of, vms_of
from scheduler_worker.tuning.averages import MovingAverages, Windows
from scheduler_worker.tuning.evaluate import Diagnostic, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample, Value, entity_groups
from scheduler_worker.tuning.tuning_policy import Scope

LOG = logging.getLogger(__name__)

METHOD = "apply_tuning"
_MAX_INTERVALS = 3
"""Bounds the elapsed time of a cycle, in intervals: after a gap no output jumps."""

Values = dict[str, float]
"""Output -> the value to set."""


class TuningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of tuning; times in seconds."""

    enabled: Annotated[bool, Opt()] = False
    """Whether this worker takes part in tuning. Each cluster is tuned by one of the workers that
    do; if that one stops, another takes over."""
    interval_s: Annotated[float, Opt(min=0, max=3600)] = 15.0
    """Seconds from one evaluation of a cluster to the next; 0: there is none. Not shorter than the
    interval of the hosts' reports. The same in all workers: a leader that runs no cycle for
    twice this time, at least a second, is replaced."""
    samples: Annotated[int, Opt(min=1, max=100)] = 10
    """Reports of a host over which averages (names that end in _avg) are taken."""
    policy_files: Annotated[tuple[str, ...], Opt(mutable=True)] = ()
    """Files with policies, and directories of which each *.yaml is one. The name of a policy is
    that of its file without .yaml. They are read again before each evaluation; a policy that does
    not load leaves the one before it in force."""
    clusters_file: Annotated[str | None, Opt(mutable=True)] = None
    """A YAML file that limits policies to clusters and gives them parameters; see docs/tuning.md.
    It is read again like policies."""
    agent_topic: Annotated[str, Opt(regex=r"^[A-Za-z0-9_.-]{1,100}$")] = "tuning_agent"
    """Topic of the hosts' agents; apply_tuning is cast to it, with the host as the server."""
    silent_after_s: float = 60.0
    """Hosts without a report for this long are not tuned."""


class TuningDependencies(NamedTuple):
    """The collaborators of all clusters' tuning."""

    fleet: Fleet
    publisher: Publisher
    clock: Clock
    observer: Observer
    settings: TuningSettings


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
        is_new = state is None or record.reported_at_s > state.reported_at_s
        inputs.windows[host] = averages.add_to(sample, host, windows, is_new=is_new)
    return inputs


class ClusterTuning:
    """Tunes one cluster on behalf of this process."""

    def __init__(self, cluster: str, deps: TuningDependencies) -> None:
        self._cluster = cluster
        self._deps = deps
        self._states = HostStates(cluster)

    def refresh(self) -> None:
        """Read the host states that other workers wrote. Raises StateUnavailable."""
        self._states.refresh(self._deps.fleet.store)

    def sample(
        self, record: HostRecord, program: Program | None, parameters: Mapping[str, Value]
    ) -> Sample:
        """Return a host's sample as the evaluator sees it, by the states last read."""
        state = self._states.hosts.get(record.uuid)
        states = {record.uuid: state} if state else {}
        inputs = cluster_inputs([record], states, self._averages(program), parameters)
        return inputs.samples[record.uuid]

    def tune(
        self, program: Program, parameters: Mapping[str, Value], lead: TuningLeadership
    ) -> list[Diagnostic]:
        """Run one cycle: evaluate, send the changes to the agents, write the new states.

        Returns the diagnostics of the evaluation. Raises StateUnavailable.
        """
        settings = self._deps.settings
        fleet, clock = self._deps.fleet, self._deps.clock
        begun_s = clock.monotonic_s()
        replica = fleet.cluster(self._cluster)
        replica.catch_up(fleet.store, clock, begun_s)
        with replica.lock:
            records = list(replica.table.records)
        self.refresh()
        states = dict(self._states.hosts)
        silent_after_s = settings.silent_after_s
        alive = (record for record in records if not is_silent(record, lead.at_s, silent_after_s))
        inputs = cluster_inputs(alive, states, self._averages(program), parameters)
        before = evaluator_state(states.values())
        entities = [entity for state in states.values() for entity in state.entities]
        set_before = {entity.entity: entity.set_by for entity in entities if entity.set_by}
        groups = entity_groups(inputs.samples, program.plans)
        max_elapsed_s = _MAX_INTERVALS * settings.interval_s
        cycle = evaluate(program, groups, before, lead.at_s, max_elapsed_s=max_elapsed_s)
        # The rules behind all values of the entities that change.
        set_by = set_before | {
            entity: set_before.get(entity, {})
            | {output: SetBy(rules, lead.at_s) for output, rules in outputs.items()}
            for entity, outputs in cycle.changed_by.items()
        }
        notified_at_s = {
            host: states[host].notified_at_s if host in states else 0.0 for host in inputs.records
        }
        to_send = inputs.outputs(cycle.changes)
        until_s = begun_s + settings.interval_s
        unsent = self._send(inputs.records, to_send, notified_at_s, lead, until_s)
        written: dict[str, TunedHostState | None] = {
            host: inputs.host_state(host, before, set_before, notified_at_s[host])
            if host in unsent
            else inputs.host_state(host, cycle.state, set_by, lead.at_s)
            for host in inputs.records
        }
        # Silent hosts keep their states; those of removed hosts are deleted.
        written |= dict.fromkeys(states.keys() - {record.uuid for record in records})
        self._states.write(fleet.store, written, lead.at_s)
        return cycle.diagnostics

    def _averages(self, program: Program | None) -> MovingAverages:
        return MovingAverages.read_by(program, self._deps.settings.samples)

    # Agents

    def _send(
        self,
        records: Mapping[str, HostRecord],
        outputs: Mapping[str, HostOutputs],
        notified_at_s: Mapping[str, float],
        lead: TuningLeadership,
        until_s: float,
    ) -> set[str]:
        """Send each agent its values; returns the hosts whose agents did not get theirs.

        Hosts that were notified longest ago come first, since the time may not suffice for all.
        """
        unsent = dict.fromkeys(sorted(outputs, key=notified_at_s.__getitem__))
        results: Counter[str] = Counter()
        for host in list(unsent):
            if self._deps.clock.monotonic_s() > until_s:
                results["late"] = len(outputs) - results.total()
                break
            try:
                self._cast(records[host].host, outputs[host], lead)
            except Undeliverable:
                results["Undeliverable"] += 1
            except BusUnavailable as error:
                LOG.warning("Tuning cannot reach the agents of %s: %s", self._cluster, error)
                results["BusUnavailable"] = len(outputs) - results.total()
                break
            else:
                results["ok"] += 1
                del unsent[host]
        for result, count in results.items():
            self._deps.observer.count(events.TUNING_CASTS, result, by=count)
        return set(unsent)

    def _cast(self, host: str, outputs: HostOutputs, lead: TuningLeadership) -> None:
        self._deps.publisher.cast(
            topic=self._deps.settings.agent_topic,
            server=host,
            method=METHOD,
            arguments={
                "host": host,
                "cluster": self._cluster,
                "cycle": lead.cycle,
                **msgspec.structs.asdict(outputs),
            },
        )
