"""What balancing does, and its mode, beside a worker that runs the rounds."""

from functools import partial

import pytest

from scheduler_worker.errors import Conflict, Forbidden, NotFound, RequestError
from scheduler_worker.operations.balancing import (
    get_balancing,
    get_balancing_mode,
    list_balancing,
    set_balancing_mode,
    withdraw_balancing_mode,
)
from scheduler_worker.operations.callers import Caller, Grant
from tests.support.balancers import Scenario, even_load
from tests.support.interrupted import before_next

ONE = {"cluster": "default"}


@pytest.fixture
def scenario():
    return Scenario(mode="dry_run")


@pytest.fixture
def world(scenario):
    """A process without a balancer of its own, on the state of the workers."""
    return scenario.beside()


def switch(world, mode, **named):
    return world.call(set_balancing_mode, mode=mode, **ONE | named)


def mode_of(world):
    found = world.call(get_balancing_mode, **ONE)
    return found.mode, found.origin


def test_what_a_round_proposed_and_what_is_under_way_are_shown(scenario, world):
    while not (scenario.status()["last_round"] or {}).get("considered"):
        scenario.round()
    found = world.call(get_balancing, **ONE)
    assert (found.cluster, found.policy, found.balance) == ("default", "spread@1", "EvenLoad")
    assert (found.mode, found.origin) == ("dry_run", "default")
    [proposal] = found.last_round.considered
    assert (proposal.vm, proposal.outcome) == ("v2", "would be asked for")
    assert found.last_round.busy_hosts == ["a"]
    assert found.under_way == found.waiting == []

    switch(world, "on")
    scenario.round()
    [under_way] = world.call(get_balancing, **ONE).under_way
    assert (under_way.vm, under_way.candidates) == ("v2", ["b", "a"])
    assert under_way.asked_at < under_way.overdue_at
    scenario.round(after_s=100)  # nothing was heard of it
    [waiting] = world.call(list_balancing).items[0].waiting
    assert (waiting.vm, waiting.failures) == ("v2", 1)
    assert "nothing was heard" in waiting.why


def test_a_mode_is_set_and_withdrawn_with_its_entries_in_the_audit(scenario, world):
    before = world.call(get_balancing_mode, **ONE)
    assert (before.policy, before.mode, before.origin) == ("spread@1", "dry_run", "default")
    made = switch(world, "off")
    assert (made.mode, made.origin) == ("off", "set")
    assert world.call(get_balancing_mode, **ONE) == made
    [entry] = world.audited()
    assert (entry.action, entry.before, entry.after) == ("balancing.switch", None, '{"mode":"off"}')
    scenario.round()
    assert scenario.status()["last_round"]["nothing_because"] == "it is switched off"
    assert world.call(withdraw_balancing_mode, **ONE) is None
    assert world.call(get_balancing_mode, **ONE) == before
    [entry] = world.audited()
    assert (entry.action, entry.before, entry.after) == ("balancing.switch", '{"mode":"off"}', None)


def test_another_policy_in_between_is_noticed(scenario, world, monkeypatch):
    """Between the check of what is there and the write: nobody saw this policy."""
    other = partial(scenario.attach, even_load("other"))
    before_next(monkeypatch, world.services.balancing, "switch", other)
    with pytest.raises(Conflict, match="changed in the meantime"):
        switch(world, "on")
    assert mode_of(world) == ("dry_run", "default")
    assert {each.result for each in world.audited()} == {"done", "refused"}


def test_there_is_nothing_to_switch_on_without_a_balance(scenario, world):
    scenario.attach({"id": "plain", "name": "plain", "version": 1})
    with pytest.raises(RequestError, match="no balance to switch on"):
        switch(world, "on")


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        (get_balancing, {}), (get_balancing_mode, {}), (withdraw_balancing_mode, {}),
        (set_balancing_mode, {"mode": "off"}),
    ],
)  # fmt: skip
def test_an_unknown_cluster_is_not_found(world, operation, asked):
    with pytest.raises(NotFound):
        world.call(operation, cluster="nowhere", **asked)
    assert world.audited() == []


@pytest.mark.parametrize(
    ("grant", "may"),
    [
        (Grant("reader"), False), (Grant("policy_editor"), False),
        (Grant("administrator", "west"), False), (Grant("administrator", "default"), True),
    ],
)  # fmt: skip
def test_administrators_switch_in_their_clusters_and_all_read(world, grant, may):
    caller = Caller("bert", (grant,), "")
    assert world.call(get_balancing, caller=caller, **ONE)
    if may:
        switch(world, "off", caller=caller)
    else:
        with pytest.raises(Forbidden):
            switch(world, "off", caller=caller)
    assert mode_of(world)[1] == ("set" if may else "default")
