"""Which of several workers feeds, and what requests hear until all hosts are known."""

import logging

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.service.feed.feeder import Feeder
from tests.support.feeds import (
    CELL,
    FULL_S,
    INTERVAL_S,
    SECOND_S,
    SILENT_S,
    HangingOutline,
    barrier,
    feeder,
    look,
    on_host,
    records,
)
from tests.support.interrupted import before_next
from tests.support.services import request


def test_one_of_two_workers_feeds_and_the_other_goes_on_from_there(world, source, fed):
    beside = world.beside()
    other = feeder(beside, source, name="other")
    for _ in range(2):
        look(fed, 20, world=world, source=source)
    assert other.run_due() > 0
    calls = source.calls.copy()
    source.place("i1", "b")
    world.clock.advance(2 * INTERVAL_S)
    other.run_due()
    assert on_host(beside, "b") == {"i1"}
    assert source.calls["read"] == calls["read"] + 1  # of the one host that has changed
    assert other.readiness.unready() is None
    before = source.calls.copy()
    look(fed, SECOND_S, world=world)
    assert source.calls == before  # it has lost the turn


@pytest.mark.parametrize(
    ("owner", "method"), [("source", "outline"), ("threads", "shutdown")], ids=["round", "stop"]
)
def test_a_worker_that_is_held_up_leaves_the_lead_to_another(
    world, source, fed, monkeypatch, owner, method
):
    other = feeder(world.beside(), source, name="other")

    def another_takes_over():
        world.clock.advance(SILENT_S + SECOND_S)
        other.run_due()
        assert fed.readiness.unready() is None  # a request reads who leads
        source.down = {"api"}  # which the worker would tell the others

    target = source if owner == "source" else fed._threads
    before_next(monkeypatch, target, method, another_takes_over)
    look(fed, FULL_S, world=world, source=source)
    fed.stop()
    third = feeder(world.beside(), source, name="third")
    third.run_due()
    assert not third.is_leader(), "the second worker still is"


def test_a_worker_that_lost_the_lead_while_it_wrote_stores_nothing_older(
    world, source, fed, monkeypatch
):
    source.put("a", memory_mb_used=1)
    second_s = source.nodes["a"][1].updated_at

    def another_takes_over():
        world.clock.advance(3 * INTERVAL_S)
        source.put("a", memory_mb_used=2, updated_at=second_s)
        feeder(world.beside(), source, "other").run_due()

    before_next(monkeypatch, world.state, "write", another_takes_over, scope="default")
    look(fed, world=world)
    world.fleet.refresh()
    assert records(world)["a"].memory_mb_used == 2


def test_another_worker_goes_on_with_a_first_reading(world, source, monkeypatch, caplog):
    """From the hosts that are stored, of which it reads what has changed meanwhile."""
    for number in range(600):
        source.put(f"n{number:03}")
    world.clock.advance(FULL_S)
    real, read = source.read, set()

    def slow(part_id, hosts):
        found = real(part_id, hosts)
        if "n599" in hosts:
            world.clock.advance(2 * INTERVAL_S)  # so long that the turn is over
        return found

    def noted(part_id, hosts):
        read.update(hosts)
        return real(part_id, hosts)

    monkeypatch.setattr(source, "read", slow)
    fed = feeder(world, source)
    fed.run_due()
    assert len(records(world)) == 500
    assert fed.readiness.unready()
    source.place("i1", "n000")
    monkeypatch.setattr(source, "read", noted)
    beside = world.beside()
    other = feeder(beside, source, name="other")
    world.clock.advance(2 * INTERVAL_S)
    other.run_due()
    assert other.readiness.unready() is None
    assert len(records(beside)) == 603
    assert on_host(beside, "n000") == {"i1"}
    assert read == {"n000", "c", *(f"n{number:03}" for number in range(498, 600))}
    look(fed, SECOND_S, world=world)
    assert fed.readiness.unready() is None
    assert "500 of 603 hosts are read" in caplog.text


@pytest.mark.parametrize("renew", [Feeder.run_due, Feeder._keep], ids=["round", "progress"])
def test_a_turn_ends_before_another_begins_however_long_its_write_took(
    world, source, fed, monkeypatch, renew
):
    other, write = feeder(world.beside(), source, name="other"), world.state.write

    def slow(*arguments, **how):
        written = write(*arguments, **how)
        world.clock.advance(INTERVAL_S)
        return written

    world.clock.advance(INTERVAL_S)
    with monkeypatch.context() as patch:
        patch.setattr(world.state, "write", slow)
        renew(fed)
    assert fed.is_leader()
    while not other.is_leader():
        world.clock.advance(SECOND_S / 2)
        other.run_due()
    assert not fed.is_leader()


def test_after_an_outage_of_all_workers_nothing_counts_as_known_from_the_first_moment_on(
    world, source, fed, monkeypatch
):
    other, heard = feeder(world.beside(), source, name="other"), []
    world.clock.advance(SILENT_S + SECOND_S)
    before_next(monkeypatch, other, "_publish", lambda: heard.append(other.readiness.unready()))
    before_next(monkeypatch, source, "outline", lambda: heard.append(other.readiness.unready()))
    other.run_due()
    assert ["still being read" in (text or "") for text in heard] == [True, True]
    assert other.readiness.unready() is None


def test_a_turn_that_lapses_by_a_late_round_is_told(world, source, fed, caplog):
    look(fed, INTERVAL_S, world=world)
    assert not caplog.records
    look(fed, 2 * INTERVAL_S, world=world)
    [warned] = caplog.records
    assert "nobody feeds meanwhile. 3 of 3 hosts are read" in warned.message


# Readiness


def test_requests_are_refused_until_all_hosts_are_known(world, source):
    fed = feeder(world, source)
    world.feed(barrier(world, fed))
    with pytest.raises(NoValidHost, match="have not been read yet"):
        world.place("i1")
    assert "have not been read yet" in (world.scheduler.explain(request("i1")).reason or "")
    source.down = {"api"}
    fed.run_due()
    with pytest.raises(NoValidHost, match="API database cannot be read"):
        world.ask("i1")
    source.down = set()
    look(fed, 10, world=world, source=source)
    assert world.place("i1")


def test_another_worker_hears_at_once_that_all_hosts_are_known(world, source):
    beside = world.beside()
    other = feeder(beside, source, name="other")
    assert other.readiness.unready()
    feeder(world, source).run_due()
    assert other.readiness.unready() is None


def test_requests_are_refused_when_nobody_has_fed_for_long(world, source, fed):
    world.clock.advance(SILENT_S + 1)
    assert "for 61 s" in (fed.readiness.unready() or "")
    fed.run_due()  # that all services are down by now is known, too
    assert fed.readiness.unready() is None
    with pytest.raises(NoValidHost):
        world.scheduler.select(request("i1"))


def test_an_api_database_that_hangs_delays_neither_the_cells_nor_the_turn(world, source):
    threads = HangingOutline()
    fed = feeder(world, source, threads=threads)
    fed.run_due()
    threads.hangs = True
    fed.look_now(outline=True)
    source.put("a", vcpus_used=3)
    for _ in range(5):
        look(fed, INTERVAL_S, world=world, source=source)
    assert records(world)["a"].vcpus_used == 3
    assert source.calls["outline"] == 1


def test_hints_are_answered_soon_and_not_each_on_its_own(world, source, fed):
    calls = source.calls["changes"]
    world.clock.advance(0.2)
    assert 0 < fed.run_due() <= 0.5
    assert source.calls["changes"] == calls
    look(fed, 0.5, world=world)
    assert source.calls["changes"] == calls + 2  # one for each cell


def test_progress_is_logged(world, source, caplog):
    caplog.set_level(logging.INFO)
    for number in range(600):
        source.put(f"n{number}")
    fed = feeder(world, source)
    fed.run_due()
    assert "Feed of east: read 500 of 602 hosts" in caplog.text
    assert "All hosts of 2 cells are known" in caplog.text
    assert fed.describe()["parts"][CELL]["hosts"] == 602
