"""The tuner: evaluates each cluster's policies every so often, and tells the hosts' agents.

For each cluster one worker at a time has the *turn*: a record that is taken by a guarded write, so
that of several who want it one gets it. It stays with whoever had it last; if that worker misses
its turn, another takes it. No lock of a cluster is held, so no decision waits for tuning. Cycles
are numbered, so that an agent can ignore one that comes late.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Iterable

import msgspec

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import Clock, Guard, Observer, PolicyFiles, Publisher, Transaction
from scheduler_worker.service.listing import Listing, Page, Row, hosts_of
from scheduler_worker.service.replica import ClusterReplica, Fleet
from scheduler_worker.service.tuner_cycle import ClusterTuning, Means, TuningSettings
from scheduler_worker.service.tuner_policies import SCOPE, TURN, Policies, Turn, put_turn
from scheduler_worker.tuning.evaluate import Diagnostic
from scheduler_worker.tuning.program import Program

LOG = logging.getLogger(__name__)

STATISTICS_LIMIT = 100
"""Hosts of a page of statistics, unless another limit is asked for."""
SEVERAL = "several"
"""Stands for the policy, where rules of several are at odds."""
_STOP_S = 5.0
_KEEP_TURNS_S = 86_400.0


class Tuner:
    """Takes turns with the tuners of other workers; ``name`` tells an operator who it is."""

    def __init__(
        self,
        fleet: Fleet,
        files: PolicyFiles,
        publisher: Publisher,
        clock: Clock,
        *,
        settings: TuningSettings,
        observer: Observer | None = None,
        name: str = "",
    ) -> None:
        self.policies = Policies(fleet.store, files)
        self._fleet = fleet
        self._listing = Listing(fleet)
        self._clock = clock
        self._settings = settings
        self._observer = observer or Observer()
        self._means = Means(fleet, publisher, clock, self._observer, settings)
        self._name = f"{name}/{uuid.uuid4()}"
        self._clusters: dict[str, ClusterTuning] = {}
        self._faults = Faults(self._observer)
        self._waits = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuning", daemon=True)

    # The thread

    def start(self) -> None:
        """Tune from now on, in a thread of its own, if there is an interval."""
        if self._settings.interval_s:
            self._thread.start()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Take no more turns; waits so long for the end of one that may be under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                wait_s = self.run_due()
            except Exception:
                LOG.exception("Tuning failed and will be tried again")
                wait_s = self._settings.interval_s

    def run_due(self) -> float:
        """Tune each cluster whose turn it is; in how many seconds the next may be."""
        wait_s = self._settings.interval_s
        try:
            self.policies.refresh()
            self._fleet.refresh_globals()
            for cluster in self._fleet.names():
                if self._stopping.is_set():
                    break
                wait_s = min(wait_s, self._tune_if_due(cluster))
            self._waits = False
        except StateUnavailable as error:
            self._observer.state_failed()
            if not self._waits:
                LOG.warning("Tuning waits for the state: %s", error)
            self._waits = True
        return wait_s

    # Turns

    def _tune_if_due(self, cluster: str) -> float:
        """In how many seconds the cluster's next turn may be."""
        program = self.policies.program(cluster)
        if program is None:
            return self._settings.interval_s
        began_s = self._clock.monotonic_s()
        turn, due_in_s = self._take_turn(cluster)
        if turn is None:
            return due_in_s
        self._tune(cluster, program, turn)
        took_s = self._clock.monotonic_s() - began_s
        self._observer.tuning_cycled(cluster, took_s)
        return max(0.0, self._settings.interval_s - took_s)

    def _tune(self, cluster: str, program: Program, turn: Turn) -> None:
        """What goes wrong in one cluster is no business of the others."""
        try:
            parameters = self.policies.parameters(cluster)
            faults = self._tuning_of(cluster).tune(program, parameters, turn)
            self._faults.tell(cluster, faults, self.policies.generation)
        except StateUnavailable:
            raise
        except Exception:
            LOG.exception("Tuning of cluster %s failed", cluster)
            self._observer.tuning_failed(cluster)

    def _take_turn(self, cluster: str) -> tuple[Turn | None, float]:
        """The turn, if it is ours now; else in how many seconds it may be."""
        shared, store = self.policies.shared, self._fleet.store
        with shared.lock:
            now_s = shared.refresh(store).now_s
            before = shared.turns.get(cluster)
            due_in_s = self._due_in_s(before, now_s)
            if due_in_s > 0:
                return None, due_in_s
            # Of the clock, so that it grows even when the state was lost.
            cycle = max(int(now_s * 1000), before.cycle + 1 if before else 0)
            turn = Turn(self._name, now_s, cycle)
            put = put_turn(cluster, turn, now_s + _KEEP_TURNS_S)
            guard = Guard(TURN + cluster, shared.version(TURN + cluster))
            written = store.write(SCOPE, [Transaction([put], [guard])])
        return (turn if written.applied[0] else None), self._settings.interval_s

    def _due_in_s(self, before: Turn | None, now_s: float) -> float:
        """A turn from the future is of a clock that was set back, and nobody's."""
        if before is None or before.at_s > now_s:
            return 0.0
        is_ours = before.tuner == self._name
        wait_s = self._settings.interval_s if is_ours else self._settings.lease_s
        return before.at_s + wait_s - now_s

    def _tuning_of(self, cluster: str) -> ClusterTuning:
        return self._clusters.setdefault(cluster, ClusterTuning(cluster, self._means))

    # Looking

    def statistics(
        self, cluster: str | None = None, marker: str | None = None, limit: int | None = None
    ) -> Page:
        """Hosts by uuid, each with what rules see of it, its VMs and their disks.

        Raises:
            RequestError: there is no such cluster, or the limit is out of bounds.
            StateUnavailable: the store cannot be reached.
        """
        self.policies.refresh()
        self._fleet.refresh_globals()
        for each in self._fleet.names():
            if cluster in {None, each}:
                self._tuning_of(each).refresh()
        limit = STATISTICS_LIMIT if limit is None else limit
        found = self._listing.page("hosts", hosts_of, _record, cluster, marker, limit)
        # Only now, without the locks of the clusters.
        found["hosts"] = [self._statistics(**each) for each in found["hosts"]]
        return found

    def _statistics(self, record: HostRecord) -> Row:
        cluster = record.cluster
        program, parameters = self.policies.program(cluster), self.policies.parameters(cluster)
        sample = self._tuning_of(cluster).sample(record, program, parameters)
        return {
            "cluster": cluster,
            "host": record.host,
            "uuid": record.uuid,
            "reported_at_s": record.reported_at_s,
            "statistics": sample.host,
            "vms": sample.vms,
            "disks": sample.disks,
        }

    def describe(self) -> dict[str, object]:
        """What is in force, what is wrong with the rest, and who tunes which cluster."""
        turns = {name: msgspec.to_builtins(turn) for name, turn in self.policies.turns().items()}
        return {"tuner": self._name, "turns": turns, **self.policies.describe()}


def _record(replica: ClusterReplica, host: str) -> Row:
    row = replica.table.row_of(host)
    assert row is not None  # noqa: S101 - listed under the same lock
    return {"record": replica.table.records[row]}


class Faults:
    """Counts what goes wrong in rules, and logs each kind once for a policy as it is."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: tuple[int, set[tuple[str, str]]] = (0, set())

    def tell(self, cluster: str, faults: Iterable[Diagnostic], generation: int) -> None:
        """Faults of one cycle, under policies of this generation."""
        if self._told[0] != generation:
            self._told = generation, set()
        counts: Counter[tuple[str, str]] = Counter()
        for each in faults:
            # A fault of several rules together names their output, which has no colon.
            policy, colon, _ = each.rule.partition(":")
            about = policy if colon else SEVERAL, each.kind
            counts[about] += 1
            if about not in self._told[1]:
                self._told[1].add(about)
                detail = f": {each.detail}" if each.detail else ""
                LOG.warning(
                    "Tuning %s: %s for %s %s: %s%s (told once for a policy)",
                    cluster, each.rule, each.entity.scope, each.entity, each.kind, detail,
                )  # fmt: skip
        for (policy, kind), count in counts.items():
            self._observer.tuning_faulted(policy, kind, count)
