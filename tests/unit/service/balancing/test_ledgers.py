"""Writes of ledgers, and what changes between the reading of a cluster and the write."""

from functools import partial

import pytest
from msgspec import structs

from scheduler_worker.model.ledgers import MigrationLedger, PowerLedger, Setback
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Changes
from scheduler_worker.service.balancing.ledgers import Ledgers
from tests.support.balancers import LIMITS, Scenario, even_load


class Bench:
    """The ledgers of one worker, and another one that acts."""

    def __init__(self) -> None:
        self.scenario = Scenario()
        fleet = self.scenario.beside().fleet
        self.ledgers = Ledgers(fleet, Observer(), LIMITS)
        self.others = Ledgers(self.scenario.beside().fleet, Observer(), LIMITS)

    def set_back(self, form) -> None:
        """A failure of something else is written down."""
        self.others.change("default", form, partial(with_setback, "other"))


def with_setback(of, ledger, *_):
    return structs.replace(ledger, setbacks={**ledger.setbacks, of: Setback(1, 1e12, "failed")})


class Overtaken:
    """Sets a VM or a host back; the first time somebody else acts meanwhile."""

    def __init__(self, act) -> None:
        self._act = act
        self.calls = 0

    def __call__(self, ledger, *_):
        self.calls += 1
        if self.calls == 1:
            self._act()
        return with_setback("own", ledger)


OF_THE_CLUSTER = {
    "mode": lambda bench: bench.scenario.balancing.switch("default", "off"),
    "policy": lambda bench: bench.scenario.attach(even_load("another")),
    "migrations": lambda bench: bench.set_back(MigrationLedger),
}
OF_A_HOST = {
    "power": lambda bench: bench.set_back(PowerLedger),
    "host": lambda bench: bench.scenario.world.report(bench.scenario.hosts["a"] | {"vcpus": 8}),
    "instances": lambda bench: bench.scenario.world.inventory.update_instances("a", {"new": {}}),
}


def named(acts):
    return pytest.mark.parametrize("act", acts.values(), ids=acts)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@named(OF_THE_CLUSTER)
def test_migrations_are_decided_again_where_they_would_be_decided_otherwise(bench, act):
    change = Overtaken(partial(act, bench))
    before, after = bench.ledgers.change("default", MigrationLedger, change)
    assert change.calls == 2
    assert after.setbacks.keys() == {*before.setbacks, "own"}


def test_of_two_changes_of_power_at_once_none_is_lost(bench):
    change = Overtaken(partial(bench.set_back, PowerLedger))
    before, after = bench.ledgers.change("default", PowerLedger, change)
    assert before.setbacks.keys() == {"other"}
    assert after.setbacks.keys() == {"other", "own"}


def test_a_cluster_that_a_late_reply_has_set_back_is_read_again(bench, monkeypatch):
    """Another thread's, to a question of before the store lost its data."""
    replica, state = bench.ledgers._fleet.cluster("default"), bench.scenario.world.state
    replica.refresh(state)
    bench.set_back(PowerLedger)
    acquire, late = state.acquire, Changes(epoch="0", version=0, now_s=0.0, entries=[], reset=True)

    def overtaken(*arguments, **how):
        grant = acquire(*arguments, **how)
        replica.apply(late)
        return grant

    monkeypatch.setattr(state, "acquire", overtaken)
    own = partial(with_setback, "own")
    after = bench.ledgers.change_power_alone(state, "default", "a", own)
    assert after is not None
    assert after.setbacks.keys() == {"other", "own"}


@named(OF_THE_CLUSTER | OF_A_HOST)
def test_power_is_left_alone_where_the_host_or_its_cluster_changes_meanwhile(bench, act):
    alone = partial(bench.ledgers.change_power_alone, bench.scenario.world.state, "default", "a")
    assert alone(Overtaken(partial(act, bench))) is None
    assert "own" in alone(Overtaken(lambda: None)).setbacks
