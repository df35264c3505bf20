"""Checks the invariants of every run on its history.

It tracks locks in :class:`Locks`, reservations in :class:`Books` and messages in :class:`Post`,
independently of the workers.
"""

from collections.abc import Iterable

from scheduler_worker.ports import Change
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica
from tests.simulation.books import Books
from tests.simulation.history import Findings
from tests.simulation.locks import Locks
from tests.simulation.placing import Placing
from tests.simulation.post import Post

SLACK_S = 0.3
"""By how much a worker may be late where nothing breaks."""


def judge(run: Placing, found: Findings) -> None:
    Checker(run, found)


class Checker:
    """Has read all of a run."""

    def __init__(self, simulation: Placing, found: Findings) -> None:
        self._blame = found.blame
        plan = simulation.plan
        self.locks = Locks(plan, self._blame)
        self.books = Books(simulation.racks, plan, self.locks, self._blame)
        post = Post(plan, self.books, self._blame)
        found.read(simulation.history.events, self.locks.see, self.books.see, post.see)
        post.see_the_end()
        self._check_end(simulation)

    def _check_end(self, simulation: Placing) -> None:
        left = simulation.left()
        for scope, changes in left.items():
            for change in changes:
                if change.key.startswith(records.RESERVATION):
                    self._blame(f"{change.key} of {scope} never ended")
        self._check_queues(simulation)
        self._check_waits(simulation)
        for worker in simulation.workers:
            for kind, count in worker.in_hand().items():
                if count:
                    self._blame(f"{worker.name} has {count} {kind} at last")
            for scope, replica in worker.replicas().items():
                self._check_replica(worker.name, replica, left.get(scope, ()))

    def _check_waits(self, simulation: Placing) -> None:
        """No request waits for pending resources for longer than is configured."""
        longest_s = simulation.setting.wait_timeout_s + SLACK_S
        for worker in simulation.workers if simulation.plan.is_calm else ():
            for outcome in worker.outcomes:
                if outcome.waits.pending_s > longest_s:
                    waited_s = outcome.waits.pending_s
                    self._blame(f"{outcome.request_id} waited {waited_s:.2f} s at {worker.name}")

    def _check_queues(self, simulation: Placing) -> None:
        broker = simulation.broker
        for queue, messages in broker.queues.items():
            for message in messages:
                self._blame(f"{message.name} was left in {queue}")
        for link in broker.links:
            for _, message in link.unacknowledged.values():
                self._blame(f"{link.server} never finished {message.name}")

    def _check_replica(self, who: str, replica: ClusterReplica, held: Iterable[Change]) -> None:
        """A worker that has just read the store knows its records, and its table agrees."""
        versions = {change.key: change.version for change in held}
        if replica.versions != versions:
            self._blame(
                f"{who} differs from the store in {replica.versions.items() ^ versions.items()}"
            )
        self._check_places(who, replica)
        for row, record in enumerate(replica.table.records):
            used = replica.table.vcpus_used[row]
            if used != record.vcpus_used:
                self._blame(f"{who} counts {used} vCPUs on {record.host}, not {record.vcpus_used}")

    def _check_places(self, who: str, replica: ClusterReplica) -> None:
        """The index over all clusters has what this one has, and nothing else of it."""
        hosts = [(records.HOST, each.uuid, each) for each in replica.table.records]
        hosts += [(records.DEPARTURE, uuid, each.host) for uuid, each in replica.departures.items()]
        known = {
            (name, kind + uuid)
            for kind, uuid, host in hosts
            for name in (uuid, *([host.host] if host else []))
        }
        named = {records.INSTANCES, records.READ}
        known |= {(key[2:], key) for key in replica.versions if key[:2] in named}
        indexed = {
            (name, key)
            for name in replica.places._by_name
            for cluster, key in replica.places._by_name.of(name)
            if cluster == replica.scope
        }
        if indexed != known:
            self._blame(f"{who} finds hosts of {replica.scope} otherwise: {indexed ^ known}")
