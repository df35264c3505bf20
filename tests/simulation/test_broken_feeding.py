"""Mutation tests of the scene in which workers feed: each break is noticed by its checker."""

import pytest

from scheduler_worker.model.feed import Tail
from scheduler_worker.ports import Transaction
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.part import FeedRecords, PartFeed
from scheduler_worker.service.feed.refreshes import Looker, RefreshRecords
from tests.simulation.conftest import in_module
from tests.simulation.plan import Crash, Pause

SCENE = "feeding"
STALE = "asked for a refresh"
LOOKS = "wait(looks, timeout=self._settings.look_timeout_s)"


@pytest.mark.parametrize(
    ("violation", "owner", "name", "old", "new", "seed"),
    [
        (STALE, RefreshRecords, "ask", "after.begun + 1", "(after.begun or 1)", 1),
        (STALE, Feeder, "look", LOOKS, "([], [])", 1),
        (STALE, Feeder, "look", "anew=True", "anew=False", 4),
        (STALE, Tail, "take", "self._latest_s - self._overlap_s", "self._latest_s", 4),
        ("hosts are known as", Tail, "take", "first_seen_s + _SETTLED_S", "first_seen_s", 8),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_method_that_is_broken(rebuilt, found_out, violation, owner, name, old, new, seed):
    rebuilt(owner, name, old, new)
    assert found_out(violation, scene=SCENE, seed=seed)


@pytest.mark.parametrize(
    ("violation", "owner", "name", "instead", "seed"),
    [
        (STALE, RefreshRecords, "replacing", lambda _, put: Transaction([put]), 1),
        ("began to feed", FeedRecords, "replacing", lambda _, put: Transaction([put]), 0),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_function_that_is_broken(broken, found_out, violation, owner, name, instead, seed):
    broken(owner, name, instead)
    assert found_out(violation, scene=SCENE, seed=seed)


def test_a_look_that_ends_though_its_worker_has_lost_the_lead(rebuilt, found_out):
    def stands_still(plan):
        pauses = [deed for deed in plan.deeds if isinstance(deed, Pause)]
        return any(deed.when in {"reads", "begins"} and deed.for_s > 2 for deed in pauses)

    rebuilt(Looker, "look_if_asked", "if self._feeder.is_leader():", "if True:")
    assert found_out(STALE, stands_still, scene=SCENE, seed=750)


def test_a_former_leader_that_goes_on_with_its_round(rebuilt, found_out):
    def stands_still(plan):
        return any(isinstance(deed, Pause) and deed.for_s > 2 for deed in plan.deeds)

    rebuilt(Feeder, "_write", "before.worker != self._name", "False")
    module = in_module("service.feed.feeder")
    assert found_out(
        "began to feed", stands_still, scene=SCENE, seed=1232, reads_in_s=0.2, **module
    )


def test_a_part_that_two_threads_read_at_the_same_time(rebuilt, found_out):
    rebuilt(PartFeed, "run", "with self._running:", "if True:")
    assert found_out(STALE, scene=SCENE, seed=38, reads_in_s=0.2, **in_module("service.feed.part"))


def test_a_look_that_is_not_begun_again_when_its_worker_has_died(rebuilt, found_out):
    rebuilt(RefreshRecords, "begin", "book.wanted <= book.done", "book.wanted <= book.begun")
    only_crashes = lambda plan: plan.breaks() == {Crash}  # noqa: E731
    assert found_out("gave up", only_crashes, scene=SCENE, seed=39923)
