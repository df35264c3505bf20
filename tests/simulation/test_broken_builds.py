"""Mutation tests of the scene in which tenants get places: each build is broken in one place, and
the checker notices.

``docs/testing.md`` names the break that it does not notice, and why that one does no harm.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.redis import connection
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.rpc.serving.connection import PublishOutcome
from scheduler_worker.rpc.serving.deliveries import DeliveryTracker
from scheduler_worker.scheduling import absorption
from scheduler_worker.service.inventory import reports
from scheduler_worker.service.inventory.reports import HostReports
from scheduler_worker.service.inventory.sightings import Sightings
from scheduler_worker.service.requests import lease, scheduler
from scheduler_worker.service.requests.lease import Lease
from scheduler_worker.service.requests.queue import ClusterQueue, WaitingList
from scheduler_worker.service.requests.scheduler import Scheduler
from scheduler_worker.service.requests.waiting import CapacityWaits
from scheduler_worker.service.state import moves, reservations
from scheduler_worker.service.state.intents import PlacementIntents, Verdicts
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import Replica
from tests.simulation.broker import BrokerConnection
from tests.simulation.conftest import always, in_module
from tests.simulation.plan import Block, Crash, Cut, Down, Drain, Nack, Plan


def is_calm(plan: Plan) -> bool:
    return plan.is_calm


def lists_early(plan: Plan) -> bool:
    return plan.setting.begun_s > 0


def decides_slowly(plan: Plan) -> bool:
    return plan.setting.decides_in_s > 0


def has_clusters(plan: Plan) -> bool:
    return len(plan.setting.clusters) > 1


def only_drains(plan: Plan) -> bool:
    return plan.breaks() == {Drain}


def blocks(plan: Plan) -> bool:
    return Block in plan.breaks()


def only_cuts(plan: Plan) -> bool:
    return plan.breaks() == {Cut}


def only_downs(plan: Plan) -> bool:
    return plan.breaks() == {Down}


def nacks(plan: Plan) -> bool:
    return Nack in plan.breaks()


def without(lock: str, broken: Callable[[Any, str, Any], None], owner: type) -> None:
    made = owner.__init__

    def make(self, *args, **options):
        made(self, *args, **options)
        setattr(self, lock, nullcontext())

    broken(owner, "__init__", make)


@pytest.mark.parametrize(
    ("violation", "script", "old", "new", "seed"),
    [
        ("without a lease", "commit", "if not (is_leased and meta.holder == owner)", "if false", 4),
        ("did not know of", "commit", "if text(meta.version) == ARGV[9]", "if true", 9),
        ("after the end of its lease", "commit", "meta.deadline > now", "true", 2),
        ("though it had been made", "commit", "if known then return known end", "", 5),
        ("while it was held", "leave", "if meta.holder == owner then", "if true then", 2),
        ("used or reserved", "common", "holds = holds and", "holds = true or", 147),
        ("came after", "acquire", "math.max(meta.token + 1, now)", "now % 1000000", 0),
        ("never ended", "common", "for _, key in ipairs(ended) do delete(key) end", "", 0),
    ],
)
def test_a_script_that_is_broken(rewritten, found_out, violation, script, old, new, seed):
    rewritten(script, old, new)
    assert found_out(violation, seed=seed)


def test_an_announcement_that_is_read_again_where_its_host_has_moved(rebuilt, found_out):
    rebuilt(moves, "_packed", "replica.announcements.get(host, {})", "{}")
    assert found_out("was read again", has_clusters, seed=1292)


def test_a_queue_that_serves_the_last_first(rewritten, found_out):
    rewritten("common", "'ZRANGE', QUEUE, 0, 0", "'ZRANGE', QUEUE, -1, -1")
    assert found_out("before its turn", is_calm, seed=6)


@pytest.mark.parametrize(
    ("violation", "owner", "name", "instead", "where", "seed"),
    [
        ("absorbed by use without it", absorption, "_is_included", lambda *_: True, lists_early, 8),
        ("absorbed by use without it", reports, "takes", lambda *_: (0, 0, 0), lists_early, 103),
        ("for which there was no reservation", reservations, "guards", lambda *_: [], always, 36),
        ("was reserved for it", lease, "reserved_rows", lambda *_: {}, always, 0),
        ("was reserved for it", PlacementIntents, "by_others", lambda *_: {}, has_clusters, 54),
        ("is reserved still", Sightings, "follow", lambda *_: {}, is_calm, 6),
        ("blocked broker", BrokerConnection, "is_blocked", False, blocks, 8),
        ("not left to a worker", connection, "StateLost", StateUnavailable, only_cuts, 40),
        ("while its caller had time", connection, "StateAway", StateUnavailable, only_downs, 24),
        ("nobody got the answer", PublishOutcome, "may_pass", False, nacks, 13),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_function_that_is_broken(broken, found_out, violation, owner, name, instead, where, seed):
    broken(owner, name, instead)
    assert found_out(violation, where, seed=seed)


def test_a_lease_that_is_kept_for_nobody(broken, rebuilt, found_out):
    broken(ClusterQueue, "_is_waited_for", lambda *_: True)
    rebuilt(ClusterQueue, "_hand_over", "kept, self._kept_lease = self._kept_lease, None", "pass")
    assert found_out("ran out", is_calm, seed=20)


def test_requests_that_wait_for_room_while_their_worker_stops(broken, found_out):
    broken(CapacityWaits, "close", lambda *_: None)
    waits = {"wait_timeout_s": 3.0, "max_waiting": 8, "slots": 8, "decides_in_s": 0.0}
    assert found_out("did not finish", only_drains, seed=957, **waits)


def test_a_second_commit_of_a_lease_that_is_taken_for_the_first(broken, found_out):
    real = RedisState.commit

    def commit(self, grant, transactions, **known):
        first = msgspec.structs.replace(grant, commits=0)
        return real(self, first, transactions, **known)

    broken(RedisState, "commit", commit)
    assert found_out("never reserved", seed=0)


def test_a_reservation_that_is_answered_and_not_made(broken, found_out):
    real = RedisState.commit

    def commit(self, grant, transactions, **known):
        written = real(self, grant, transactions, **known)
        return written._replace(applied=tuple(True for _ in written.applied))

    broken(RedisState, "commit", commit)
    assert found_out("never reserved", seed=0)


@pytest.mark.parametrize(
    ("what", "fault", "seed"),
    [("had no effect", None, 0), ("was never answered", Crash, 83)],
    ids=["", "and lost with its worker"],
)
def test_a_message_that_is_acknowledged_on_arrival(broken, found_out, what, fault, seed):
    real = DeliveryTracker.take

    def take(self, delivery):
        real(self, delivery)
        self._settle(delivery.tag)

    broken(DeliveryTracker, "take", take)
    assert found_out(what, lambda plan: not fault or fault in plan.breaks(), seed=seed)


def test_work_that_a_stopping_worker_acknowledges_and_does_not_do(broken, found_out):
    def give_back(self, work):
        self.forget(work)
        self._settle(*work.tags)

    broken(DeliveryTracker, "give_back", give_back)
    assert found_out("had no effect", seed=13)


def test_an_announcement_that_frees_a_reservation(broken, found_out):
    def announced(reserved, facts, known, now_s):
        return reservations.given_back(each for each in reserved if each.instance_uuid in facts)

    broken(reservations, "announced", announced)
    assert found_out("freed by an announcement", seed=1)


def test_use_older_than_the_instance_that_absorbs_its_reservation(broken, found_out):
    def settled(reserved, report):
        ended = [each for each in reserved if each.announced_at_s or each.state == "confirmed"]
        return ended, [each for each in reserved if each not in ended]

    broken(reports, "settled", settled)
    assert found_out("absorbed by use without it", seed=27)


def test_placement_intents_that_are_not_exclusive(broken, found_out):
    broken(PlacementIntents, "declare", lambda self, intents, now_s: [True] * len(intents))
    assert found_out("was reserved for it", has_clusters, seed=32)


def test_a_cluster_queue_without_its_lock(broken, found_out):
    without("_guard", broken, ClusterQueue)
    assert found_out("", slots=8, seed=12, **in_module("service.requests.queue"))


def test_a_replica_without_its_lock(broken, found_out):
    without("lock", broken, Replica)
    assert found_out("", seed=7, **in_module("model.host_table"))


def test_older_changes_that_are_applied(rebuilt, found_out):
    # Either check alone suffices: what follows on older changes is read again.
    rebuilt(
        Replica, "apply", "return True\n    if not changes.reset and not", "pass\n    if False and"
    )
    looks = {"slots": 8, "max_batch": 1, "max_waiting": 8, "wait_timeout_s": 3.0}
    slow = {"slowness": 0.25, "decides_in_s": 0.0, **in_module("service.state.replica")}
    assert found_out("", has_clusters, **looks, seed=56, **slow)


def test_refused_requests_that_keep_their_reservations(broken, found_out):
    broken(scheduler, "take_back", lambda deps, attempt: set())
    broken(Verdicts, "record", lambda verdicts, digest, verdict: Verdict("Another copy was."))
    assert found_out("is reserved for it")


def test_a_wait_whose_timeout_restarts_with_every_attempt(rebuilt, found_out):
    rebuilt(Scheduler, "_refused", "if life.wait_until_s is None:", "if True:")
    assert found_out("waited", is_calm, wait_timeout_s=1.0, decides_in_s=0.0, seed=95)


def test_a_request_that_is_decided_after_its_deadline(rebuilt, found_out):
    late = "queued.attempt.caller_deadline_s <= ready_s"
    rebuilt(ClusterQueue, "_begin", f"queued.deadline_s <= self._now_s() or {late}", "False")
    rebuilt(ClusterQueue, "_split_late", f"each.{late}", "False")
    assert found_out("after its caller had gone", decides_slowly, seed=32)


def test_a_lease_that_is_used_to_its_end(broken, found_out):
    broken(Lease, "is_half_over", lambda _: False)
    slow = {"decides_in_s": 0.2, "slots": 8, "max_batch": 8, "wait_timeout_s": 0.0}
    assert found_out("ran out", is_calm, seed=74, **slow)


def test_a_cluster_queue_that_serves_the_last_first(rebuilt, found_out):
    new = "self.insert(0, queued)"
    rebuilt(WaitingList, "add", "insort_right(self, queued, key=_rank_s)", new)
    assert found_out("before their turn")


def test_a_report_that_ignores_reservations(rebuilt, found_out):
    rebuilt(HostReports, "_plan_instances", "guards += reservations.guards(replica, reserved)", "")
    assert found_out("for which there was no reservation", seed=34)
