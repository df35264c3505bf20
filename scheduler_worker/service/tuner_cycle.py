"""One cluster's tuning: look, evaluate, tell the agents, remember.

An agent is told before it is remembered what it was told. Who dies in between leaves what was
before, from which the next worker comes to the same values; and what an agent could not be told
counts as not said.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import BusUnavailable, Undeliverable
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Clock, Observer, Publisher
from scheduler_worker.service.replica import Fleet
from scheduler_worker.service.tuner_memory import HostMemory, Memories, recalled
from scheduler_worker.service.tuner_policies import Turn
from scheduler_worker.service.tuner_statistics import Averaging, averages
from scheduler_worker.service.tuner_view import Orders, View, view
from scheduler_worker.tuning.evaluate import Diagnostic, Options, evaluate
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Sample, Value, crowds

LOG = logging.getLogger(__name__)

METHOD = "apply_tuning"
_SHORTEST_LEASE_S = 1.0
_MOST_MISSED = 3
"""After a pause outputs move as if at most so many intervals had passed: nothing jumps."""


class TuningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How clusters are tuned; times in seconds."""

    interval_s: float = 0.0
    """From one evaluation of a cluster to the next; 0: there is none."""
    samples: int = 10
    """Reports that averages are over."""
    agent_topic: str = "tuning_agent"
    policy_files: tuple[str, ...] = ()
    clusters_file: str | None = None
    silent_after_s: float = 60.0
    """A host that has not reported for so long is left alone."""

    @property
    def lease_s(self) -> float:
        """When a worker that has not taken its turn again loses it."""
        return max(2 * self.interval_s, _SHORTEST_LEASE_S)


class Means(NamedTuple):
    """What every cluster's tuning works with."""

    fleet: Fleet
    publisher: Publisher
    clock: Clock
    observer: Observer
    settings: TuningSettings


class ClusterTuning:
    """A cluster's tuning, as far as this process does it."""

    def __init__(self, cluster: str, means: Means) -> None:
        self._cluster = cluster
        self._means = means
        self._memories = Memories(cluster)

    def refresh(self) -> None:
        """Know what others remember by now. Raises StateUnavailable."""
        with self._memories.lock:
            self._memories.refresh(self._means.fleet.store)

    def sample(
        self, record: HostRecord, program: Program | None, parameters: Mapping[str, Value]
    ) -> Sample:
        """One host as the evaluator sees it, by what this process knows."""
        memory = self._memories.hosts.get(record.uuid)
        known = {record.uuid: memory} if memory else {}
        return view([record], known, self._averaging(program), parameters).samples[record.uuid]

    def tune(
        self, program: Program, parameters: Mapping[str, Value], turn: Turn
    ) -> list[Diagnostic]:
        """Evaluate once; what went wrong for some of the hosts, VMs and disks.

        Raises StateUnavailable.
        """
        until_s = self._means.clock.monotonic_s() + self._means.settings.interval_s
        records = self._records()
        self.refresh()
        known = dict(self._memories.hosts)
        alive = (each for each in records if not self._is_silent(each, turn.at_s))
        seen = view(alive, known, self._averaging(program), parameters)
        before = recalled(known.values())
        options = Options(max_elapsed_s=_MOST_MISSED * self._means.settings.interval_s)
        cycle = evaluate(program, crowds(seen.samples, program.plans), before, turn.at_s, options)
        told_at_s = {host: known[host].told_at_s if host in known else 0.0 for host in seen.records}
        orders = seen.orders(cycle.changes)
        untold = self._tell(seen, orders, told_at_s, turn, until_s)
        memories: dict[str, HostMemory | None] = {
            host: seen.memory_of(host, before, told_at_s[host])
            if host in untold
            else seen.memory_of(host, cycle.memory, turn.at_s)
            for host in seen.records
        }
        memories |= dict.fromkeys(known.keys() - {each.uuid for each in records})
        self._memories.write(self._means.fleet.store, memories, turn.at_s)
        return cycle.diagnostics

    def _averaging(self, program: Program | None) -> Averaging:
        return Averaging(averages(program), self._means.settings.samples)

    def _records(self) -> list[HostRecord]:
        fleet, clock = self._means.fleet, self._means.clock
        replica = fleet.cluster(self._cluster)
        replica.catch_up(fleet.store, clock, clock.monotonic_s())
        with replica.lock:
            return list(replica.table.records)

    def _is_silent(self, record: HostRecord, now_s: float) -> bool:
        return now_s - record.reported_at_s > self._means.settings.silent_after_s

    # Telling

    def _tell(
        self,
        seen: View,
        orders: Mapping[str, Orders],
        told_at_s: Mapping[str, float],
        turn: Turn,
        until_s: float,
    ) -> set[str]:
        """Tell the agents; the hosts that are still to be told.

        Whoever has waited longest comes first, should there be no time for all.
        """
        left = dict.fromkeys(sorted(orders, key=told_at_s.__getitem__))
        results: Counter[str] = Counter()
        for host in list(left):
            if self._means.clock.monotonic_s() > until_s:
                results["late"] = len(orders) - results.total()
                break
            try:
                self._cast(seen.records[host].host, orders[host], turn)
            except Undeliverable:
                results["Undeliverable"] += 1
            except BusUnavailable as error:
                LOG.warning("Tuning cannot tell the agents of %s: %s", self._cluster, error)
                results["BusUnavailable"] = len(orders) - results.total()
                break
            else:
                results["ok"] += 1
                del left[host]
        for result, count in results.items():
            self._means.observer.tuning_told(result, count)
        return set(left)

    def _cast(self, host: str, orders: Orders, turn: Turn) -> None:
        self._means.publisher.cast(
            topic=self._means.settings.agent_topic,
            server=host,
            method=METHOD,
            arguments={
                "host": host,
                "cluster": self._cluster,
                "cycle": turn.cycle,
                **msgspec.structs.asdict(orders),
            },
        )
