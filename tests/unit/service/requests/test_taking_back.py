"""Claims in Placement that are taken back, and those that are not."""

import msgspec
import pytest

from scheduler_worker.errors import DeadlineExceeded, PlacementUnavailable
from scheduler_worker.model.providers import Consumer, Owner
from scheduler_worker.placement import ClaimRefusal, Why
from tests.support.patience import eventually
from tests.support.placement_model import PLAIN, held_on, scene
from tests.support.services import request


def test_a_claim_that_is_made_too_late_is_taken_back_with_its_reservation():
    world, placement = scene("a")
    placement.after = lambda consumers: world.clock.advance(30)
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", remaining_s=20)
    assert world.reserved() == {}
    eventually(lambda: not placement.held())


def test_a_write_whose_answer_was_lost_for_good_is_taken_back():
    world, placement = scene("a")

    def lose(consumers):
        placement.after = lambda consumers: None
        world.clock.advance(30)
        raise PlacementUnavailable("no answer")

    placement.after = lose
    with pytest.raises(PlacementUnavailable):
        world.ask("i1", remaining_s=20)
    eventually(lambda: ("posted", "taken back", 1) in world.observed.events)
    assert placement.held() == {}


def test_what_another_copy_was_answered_with_stays():
    world, placement = scene("a")
    asked = request("i1", request_id="req-1")
    decision = world.scheduler.select(asked)
    world.beside().scheduler.select(asked)
    world.scheduler.take_back(decision)
    assert world.scheduler.close(60) == 0
    assert held_on(placement, "i1") == ["uuid-a"]
    assert world.reserved() == {"a": ["i1"]}


@pytest.mark.parametrize(
    ("held", "generation"),
    [
        pytest.param("ab", 5, id="written again"),
        pytest.param("ab", 1, id="deleted and made anew"),
        pytest.param("ac", 4, id="another one"),
        pytest.param("", None, id="deleted"),
    ],
)
def test_a_claim_that_is_not_the_one_that_was_written_is_not_taken_back(held, generation, caplog):
    world, placement = scene("a", "b")
    source = Consumer(uuid="i1", owner=Owner("p", "u"), held={"uuid-a": PLAIN}, generation=3)
    placement.consumers["i1"] = source
    decision = world.ask("i1", ignore_hosts=["a"])
    holding = {f"uuid-{name}": PLAIN for name in held}
    there = msgspec.structs.replace(source, held=holding, generation=generation)
    placement.consumers = {"i1": there} if held else {}
    written = list(placement.writes)
    world.scheduler.take_back(decision)
    assert world.scheduler.close(60) == 0
    assert placement.writes == written
    assert caplog.text == ""


def test_of_an_evacuation_only_the_destination_is_taken_back():
    world, placement = scene("a", "b")
    source = Consumer(uuid="i1", owner=Owner("p", "u"), held={"uuid-a": PLAIN}, generation=3)
    placement.consumers["i1"] = source
    decision = world.ask("i1", ignore_hosts=["a"])
    world.scheduler.take_back(decision)
    eventually(lambda: held_on(placement, "i1") == ["uuid-a"])


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "busy"])
def test_a_claim_is_taken_back_when_placement_serves_again(is_away):
    world, placement = scene("a")
    decision = world.ask("i1")
    busy = iter([ClaimRefusal(why=Why.BUSY, message="moved on")] * 3)

    def refuse(consumers):
        refusal = next(busy, None)
        if refusal and is_away:
            raise PlacementUnavailable("connection refused")
        return refusal

    placement.before = refuse
    world.scheduler.take_back(decision)
    assert world.reserved() == {}
    eventually(lambda: not placement.held())


def test_the_unanswered_are_taken_back_before_the_end():
    world, placement = scene("a", "b")
    world.ask("i1")
    world.ask("i2")
    assert world.scheduler.take_back_unanswered() == 2
    assert world.scheduler.close(60) == 0
    assert placement.held() == {}
