"""Claims in Placement: every answer of it, and redelivery."""

import contextlib
import math
import random
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import (
    AllocationUpdateFailed,
    NoValidHost,
    PlacementConflict,
    PlacementRefused,
    PlacementUnavailable,
    RequestError,
    WorkerStops,
)
from scheduler_worker.model.providers import Consumer, Owner
from scheduler_worker.placement import ClaimRefusal, Why
from scheduler_worker.service.requests.claim_batcher import ClaimSettings
from scheduler_worker.waiters import complete
from tests.support.interrupted import raising
from tests.support.patience import SOON_S, eventually
from tests.support.placement_model import PLAIN, PlacementModel, held_on, scene
from tests.support.services import World, host, request
from tests.support.threads import Threads, in_thread


def test_what_was_chosen_is_claimed_when_the_answer_is_there():
    world, placement = scene("a", "b")
    assert world.place("i1") == ["a"]
    [consumer] = placement.consumers.values()
    assert consumer.owner == Owner("project", "user")
    assert consumer.held == {"uuid-a": PLAIN}
    assert consumer.mappings == {"": ["uuid-a"]}
    assert ("claimed", "claimed", 1) in world.observed.events
    assert ("posted", "written", 1) in world.observed.events


def test_a_request_without_an_owner_is_refused_before_it_is_decided():
    world, _ = scene("a")
    asked = request("i1", project_id="p")
    with pytest.raises(RequestError, match=r"spec_obj\.user_id"):
        world.scheduler.select(msgspec.structs.replace(asked, owner=None))
    assert world.reserved() == {}


# Refused: full, gone, busy


def test_a_full_provider_is_read_again_and_the_request_decided_without_its_host():
    world, placement = scene("a", "b")
    placement.capacities["uuid-a"] = {"VCPU": 0}
    assert world.place("i1") == ["b"]
    assert held_on(placement, "i1") == ["uuid-b"]
    assert world.reserved() == {"b": ["i1"]}
    assert placement.read_again_of == [{"uuid-a"}]
    assert ("claimed", "full", 1) in world.observed.events


def test_what_is_refused_is_taken_back_though_a_report_wrote_the_reservation_anew():
    """As reports do: they note in it what the use of the host had before the instance."""
    world, placement = scene("a", "b")
    small = host("b", memory_mb=1024, cell_uuid="cell")
    world.report(host("a", cell_uuid="cell", vcpus_used=2), small)
    stored = []

    def refuse(consumers):
        if "uuid-a" not in consumers[0].held or stored:
            return None
        replica = world.fleet.cluster("default")
        stored.append(replica.version("p:i1@uuid-a"))
        world.report(host("a", cell_uuid="cell", vcpus_used=1))
        stored.append(replica.version("p:i1@uuid-a"))
        return ClaimRefusal(why=Why.FULL, message="over capacity")

    placement.before = refuse
    assert world.place("i1") == ["b"]
    assert stored[0] != stored[1]
    assert world.reserved() == {"b": ["i1"]}


def test_a_request_whose_hosts_are_always_refused_is_decided_again_some_times_only():
    world, placement = scene(*"abcdefghij")
    placement.before = lambda consumers: ClaimRefusal(why=Why.FULL, message="over capacity")
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert len(placement.writes) == 8
    assert world.reserved() == {}


def test_instances_of_one_request_are_claimed_all_or_none():
    world, placement = scene("a")
    placement.capacities["uuid-a"] = {"VCPU": 2, "MEMORY_MB": 8192}
    with pytest.raises(NoValidHost):
        world.ask("i1", "i2", "i3")
    assert placement.writes == [["i1", "i2", "i3"]]
    assert placement.held() == {}
    assert world.reserved() == {}


BUSY = ClaimRefusal(why=Why.BUSY, message="moved on")


def test_a_claim_that_met_faster_writers_is_made_in_the_end():
    world, placement = scene("a", "b")
    answers = iter([BUSY] * 5)
    placement.before = lambda consumers: next(answers, None)
    assert world.place("i1") == ["a"]
    assert len(placement.writes) == 6


def test_a_claim_that_always_meets_faster_writers_is_a_conflict_when_its_time_is_over():
    world, placement = scene("a", "b")

    def busy(consumers):
        world.clock.advance(6)
        return BUSY

    placement.before = busy
    with pytest.raises(PlacementConflict, match="always faster at provider uuid-a; try again"):
        world.ask("i1", remaining_s=20)
    assert world.reserved() == {}
    assert placement.reads == 0, "nothing was written, so nothing is taken back"
    assert ("claimed", "PlacementConflict", 1) in world.observed.events
    [outcome] = world.observed.outcomes
    assert outcome.result == "PlacementConflict"


def test_a_claim_that_pauses_holds_up_no_other_and_ends_with_the_worker(monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda least, most: math.inf)
    world, placement = scene("a", settings=ClaimSettings(workers=1))
    placement.before = lambda consumers: BUSY if consumers[0].uuid == "i1" else None
    pausing = in_thread(world.place, "i1")
    eventually(lambda: placement.writes == [["i1"]])
    assert world.place("i2") == ["a"]
    world.scheduler.stop_waiting()
    with pytest.raises(WorkerStops, match="always faster"):
        pausing.result(SOON_S)
    assert placement.writes == [["i1"], ["i2"], ["i1"]]


# Consumers that exist


def test_a_redelivered_request_finds_its_claim_and_gets_the_same_host():
    world, placement = scene("a", "b")
    asked = request("i1", request_id="req-1")
    first = world.scheduler.select(asked).selections[0][0]
    again = world.beside().scheduler.select(asked).selections[0][0]
    assert again.service_host == first.service_host
    assert again.allocation == first.allocation
    assert placement.held() == {"i1": {"uuid-a": PLAIN}}


def test_a_worker_that_dies_before_the_claim_leaves_a_reservation_that_the_next_one_claims():
    world, placement = scene("a", "b")

    other = World(
        state=world.state, clock=world.clock, options=world.options, placement=None
    )  # decides and reserves, and then does no more
    asked = request("i1", request_id="req-1")
    other.scheduler.select(asked)
    assert placement.held() == {}
    assert world.scheduler.select(asked).selections[0][0].service_host == "a"
    assert held_on(placement, "i1") == ["uuid-a"]


def test_a_lost_answer_of_placement_is_found_to_have_been_yes():
    world, placement = scene("a", "b")

    def lose(consumers):
        placement.after = lambda consumers: None
        raise PlacementUnavailable("no answer")

    placement.after = lose
    assert world.place("i1") == ["a"]
    assert placement.held() == {"i1": {"uuid-a": PLAIN}}


def test_an_evacuated_instance_holds_source_and_destination():
    world, placement = scene("a", "b")
    source = Consumer(uuid="i1", owner=Owner("p", "u"), held={"uuid-a": PLAIN}, generation=3)
    placement.consumers["i1"] = source
    assert world.place("i1", ignore_hosts=["A"]) == ["b"]
    found = placement.consumers["i1"]
    assert found.held == {"uuid-a": PLAIN, "uuid-b": PLAIN}
    assert found.generation == 4
    assert found.mappings == {}


def test_an_instance_that_holds_something_elsewhere_is_not_claimed():
    world, placement = scene("a", "b", "c")
    elsewhere = Consumer(uuid="i1", owner=Owner("p", "u"), held={"uuid-c": PLAIN}, generation=1)
    placement.consumers["i1"] = elsewhere
    for ignored in (None, ["b"]):
        with pytest.raises(AllocationUpdateFailed, match="consumer i1"):
            world.ask("i1", ignore_hosts=ignored)
    assert placement.consumers == {"i1": elsewhere}
    assert world.reserved() == {}


def test_of_several_instances_one_is_found_claimed_already():
    world, placement = scene("a")
    ours = Consumer(uuid="i1", owner=Owner("p", "u"), held={"uuid-a": PLAIN}, generation=1)
    placement.consumers["i1"] = ours
    assert world.place("i1", "i2") == ["a", "a"]
    assert placement.providers() == {"i1": ["uuid-a"], "i2": ["uuid-a"]}
    assert placement.generation("i1") == 2


def test_a_consumer_that_changes_all_the_time_is_given_up():
    world, placement = scene("a")

    def change(consumers):
        world.clock.advance(6)
        placement.consumers["i1"] = consumers[0].written()
        return ClaimRefusal(why=Why.CHANGED, message="consumer generation conflict")

    placement.before = change
    with pytest.raises(AllocationUpdateFailed, match="generation conflict"):
        world.ask("i1", remaining_s=12)


def test_an_empty_consumer_that_another_write_left_is_written_upon_after_a_while():
    world, placement = scene("a")
    placement.empty.add("i1")
    placement.before = lambda consumers: world.clock.advance(6)
    assert world.place("i1") == ["a"]
    assert held_on(placement, "i1") == ["uuid-a"]


def test_an_empty_consumer_may_be_that_of_a_write_under_way_which_is_waited_for():
    """Placement makes the consumer first, and deletes it again if the write fails."""
    world, placement = scene("a")
    placement.empty.add("i1")
    generations = []

    def finish(consumers):
        generations.append(consumers[0].generation)
        if len(generations) == 2:
            placement.empty.discard("i1")

    placement.before = finish
    assert world.place("i1") == ["a"]
    assert generations == [None, None]


# Many at a time


class Gate:
    """Holds the first write until it is opened."""

    def __init__(self, placement: PlacementModel) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        self._is_first = True
        self._guard = threading.Lock()
        placement.before = self._pass

    def _pass(self, consumers):
        with self._guard:
            is_first, self._is_first = self._is_first, False
        if is_first:
            self.reached.set()
            assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()


def all_at_once(
    names: str,
    number: int,
    *,
    batch: int = 50,
    workers: int = 1,
    capacities: dict[str, dict[str, int]] | None = None,
    meanwhile: Callable[[PlacementModel], object] = lambda placement: None,
) -> tuple[dict[str, Any], PlacementModel]:
    """So many requests wait behind another one's claim: what each was answered, and the model."""
    world, placement = scene(*names, settings=ClaimSettings(workers=workers, batch=batch))
    placement.capacities |= capacities or {}
    gate = Gate(placement)
    answers: dict[str, Any] = {}

    def ask(uuid: str) -> None:
        try:
            answers[uuid] = world.place(uuid)
        except Exception as error:
            answers[uuid] = error

    with Threads(1 + number) as threads:
        threads.submit(ask, "first")
        assert gate.reached.wait(60)
        for at in range(number):
            threads.submit(ask, f"i{at}")
        eventually(lambda: sum(map(len, world.reserved().values())) == 1 + number)
        pool = world.scheduler._claims._batcher
        eventually(lambda: len(pool._jobs) == number)
        meanwhile(placement)
        gate.open()
    return answers, placement


def test_what_waits_is_written_together():
    answers, placement = all_at_once("abcd", 6, batch=4)
    assert [len(each) for each in placement.writes] == [1, 4, 2]
    assert placement.held().keys() == answers.keys()
    assert all(isinstance(each, list) for each in answers.values())


def test_claims_of_one_provider_are_not_written_beside_each_other():
    answers, placement = all_at_once("a", 3, workers=4)
    assert [sorted(each) for each in placement.writes] == [["first"], ["i0", "i1", "i2"]]
    assert placement.held().keys() == answers.keys()


def test_claims_of_different_providers_are_written_beside_each_other():
    world, placement = scene("a", "b")
    gate = Gate(placement)
    with Threads(1) as threads:
        threads.submit(world.place, "i1")
        assert gate.reached.wait(60)
        chosen = world.place("i2")
        gate.open()
    assert held_on(placement, "i1") != [f"uuid-{name}" for name in chosen]
    assert placement.writes[0] == ["i2"]


def test_a_refused_batch_is_divided_and_only_the_refused_one_goes_elsewhere():
    small = {"uuid-c": {"VCPU": 1, "MEMORY_MB": 8192}}
    answers, placement = all_at_once("abcd", 6, capacities=small)
    assert placement.held().keys() == answers.keys()
    on_c = [uuid for uuid, providers in placement.providers().items() if providers == ["uuid-c"]]
    assert len(on_c) == 1
    for uuid, [chosen] in answers.items():
        assert held_on(placement, uuid) == [f"uuid-{chosen}"]


def test_those_that_were_written_with_a_provider_that_is_gone_name_generation_0():
    answers, placement = all_at_once(
        "abcd", 4, meanwhile=lambda placement: placement.capacities.pop("uuid-c")
    )
    assert placement.held().keys() == answers.keys()
    assert not any("uuid-c" in providers for providers in placement.providers().values())
    assert placement.reads == 0


def test_one_that_placement_does_not_understand_does_not_harm_the_others():
    def pick(consumers):
        if any(each.uuid == "i2" for each in consumers):
            raise PlacementRefused("No such resource class CUSTOM_X.")

    answers, placement = all_at_once(
        "abcd", 4, meanwhile=lambda placement: setattr(placement, "before", pick)
    )
    assert isinstance(answers["i2"], PlacementRefused)
    assert set(placement.held()) == {"first", "i0", "i1", "i3"}


# Away, late, stopping


def test_a_request_fails_clearly_when_its_time_is_over_and_nothing_stays():
    world, placement = scene("a")

    def away(consumers):
        world.clock.advance(6)
        raise PlacementUnavailable("connection refused")

    placement.before = away
    with pytest.raises(PlacementUnavailable, match="connection refused"):
        world.ask("i1", remaining_s=20)
    assert world.reserved() == {}
    assert placement.held() == {}
    [outcome] = world.observed.outcomes
    assert outcome.result == "PlacementUnavailable"
    assert outcome.waits.claim_s == 18


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "write under way"])
def test_a_worker_that_stops_does_not_wait_for_placement(is_away):
    world, placement = scene("a")
    world.scheduler.stop_waiting()
    if is_away:
        placement.before = raising(PlacementUnavailable("connection refused"))
    else:
        placement.empty.add("i1")
    with pytest.raises(WorkerStops):
        world.ask("i1")
    assert world.reserved() == {}


def test_after_the_end_nothing_is_claimed():
    world, placement = scene("a")
    assert world.scheduler.close(60) == 0
    with pytest.raises(WorkerStops):
        world.ask("i1")
    assert placement.writes == []
    assert world.reserved() == {}


def test_a_request_waits_for_placement_without_its_slot():
    world, placement = scene("a")
    entered: list[str] = []
    inside = []

    @contextlib.contextmanager
    def yield_slot():
        entered.append("begins")
        yield
        entered.append("ends")

    placement.before = lambda consumers: inside.append(list(entered))
    complete(world.scheduler.selecting(request("i1"), yield_slot=yield_slot))
    assert inside == [["begins"]]
    assert entered == ["begins", "ends"]


def test_so_many_wait_without_slots_as_may_be_written_soon():
    world, placement = scene("a", settings=ClaimSettings(batch=1, workers=1))
    gate, yielded = Gate(placement), []

    @contextlib.contextmanager
    def yield_slot():
        yielded.append(1)
        yield

    def ask(uuid: str) -> None:
        complete(world.scheduler.selecting(request(uuid), yield_slot=yield_slot))

    with Threads(3) as threads:
        asking = [threads.submit(ask, f"i{number}") for number in range(3)]
        assert gate.reached.wait(60)
        eventually(lambda: len(world.scheduler._claims._batcher._jobs) == 2)
        assert len(yielded) == 1
        gate.open()
        for each in asking:
            each.result(SOON_S)
    assert len(placement.held()) == 3
