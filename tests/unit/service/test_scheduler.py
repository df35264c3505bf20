"""Selecting: promises, retries of the same request, lost races, stale tokens, several clusters."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    NoValidHost,
    RequestError,
    StaleFencingToken,
)
from scheduler_worker.ports import Seen
from tests.support.services import World, host, request


@pytest.fixture
def world() -> World:
    return World()


def test_a_decision_is_a_promise(world):
    world.report(host("a"), host("b", memory_mb=4096))
    decision = world.ask("i1")
    assert decision.selections[0][0].service_host == "a"
    [promise] = world.listing.reservations()["reservations"]
    assert promise["instance_uuid"] == "i1"
    assert promise["resources"]["memory_mb"] == 1024
    assert promise["expires_at_s"] == world.clock.time_s() + world.limits.promise_ttl_s


def test_what_is_promised_is_not_promised_again(world):
    world.report(host("a"))
    for number in range(4):
        assert world.place(f"i{number}") == ["a"]
    with pytest.raises(NoValidHost) as refused:
        world.ask("i5")
    [core] = [step for step in refused.value.diagnosis.filters if step.name == "CoreFilter"]
    assert (core.hosts_in, core.hosts_out) == (1, 0)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"requested_destination": {"host": "c"}}, "host: c node: None "),
        ({"requested_destination": {"node": "n"}}, "host: None node: n "),
        ({"requested_destination": {"host": "a", "node": "b"}}, "host: a node: b "),
        ({"force_hosts": ["c"], "force_nodes": ["n"]}, "host: c node: n "),
    ],
    ids=str,
)
def test_a_destination_that_does_not_exist_is_named(world, asked, named):
    world.report(host("a"), host("b", cluster="two"))
    with pytest.raises(NoValidHost) as refused:
        world.ask("i1", **asked)
    assert str(refused.value) == f"No valid host was found. No such host - {named}"


def test_a_destination_that_exists_is_full_not_unknown(world):
    world.report(host("a"), host("b", cluster="two"))
    for asked in ({"host": "b"}, {"node": "b"}):
        asked = {"requested_destination": asked}
        with pytest.raises(NoValidHost, match="There are not enough hosts available"):
            world.ask("i1", vcpus=99, **asked)
        assert world.place(f"i-{asked}", **asked) == ["b"]


def test_another_worker_sees_the_promises(world):
    world.report(host("a"))
    other = world.beside()
    assert world.place("i1", vcpus=3) == ["a"]
    with pytest.raises(NoValidHost):
        other.place("i2", vcpus=2)
    assert other.place("i3", vcpus=1) == ["a"]


def test_asking_again_returns_the_promised_host_and_promises_nothing_more(world):
    world.report(host("a"), host("b"))
    first = world.place("i1")
    world.report({"host": first[0], "memory_mb_used": 8192})
    assert world.beside().place("i1") == first
    assert world.promised() == {first[0]: ["i1"]}


def test_asking_again_while_nothing_else_fits(world):
    world.report(host("a", vcpus=1))
    assert world.place("i1") == world.place("i1") == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"ignore_hosts": ["A"]},
        {"retry": {"num_attempts": 1, "hosts": [{"host": "a", "hypervisor_hostname": "a"}]}},
        {"memory_mb": 2048},
        {"requested_destination": {"host": "b"}},
    ],
)
def test_a_promise_that_no_longer_suits_is_not_returned(world, change):
    world.report(host("a", memory_mb=4096), host("b", memory_mb=2048))
    assert world.place("i1") == ["a"]
    world.report({"host": "b", "memory_mb": 16384})
    assert world.place("i1", **change) == ["b"]


def test_multi_create_is_all_or_nothing(world):
    world.report(host("a", vcpus=2), host("b", vcpus=1))
    with pytest.raises(NoValidHost):
        world.ask("i1", "i2", "i3", "i4")
    assert world.promised() == {}
    assert sorted(world.place("i1", "i2", "i3")) == ["a", "a", "b"]


def test_a_half_promised_multi_create_is_completed(world):
    world.report(host("a"), host("b"))
    world.place("i1")
    assert len(world.place("i1", "i2")) == 2
    assert sorted(sum(world.promised().values(), [])) == ["i1", "i2"]


def test_anti_affinity_sees_promises_of_other_requests(world):
    world.report(host("a"), host("b"))
    group = {"policy": "anti-affinity", "members": ["i1", "i2", "i3"], "hosts": []}
    placed = world.place("i1", instance_group=group)
    assert world.beside().place("i2", instance_group=group) != placed
    with pytest.raises(NoValidHost):
        world.place("i3", instance_group=group)


def test_alternates_are_offered_and_not_promised(world):
    world.report(*(host(name) for name in "abcd"))
    [[chosen, *alternates]] = world.ask("i1", alternates=2).selections
    assert len(alternates) == 2
    assert chosen.service_host not in {each.service_host for each in alternates}
    assert sum(len(each) for each in world.promised().values()) == 1


def test_a_rebuild_check_promises_nothing(world):
    world.report(host("a", vcpus=1, vcpus_used=1))
    hints = {"_nova_check_type": ["rebuild"]}
    assert world.place("i1", scheduler_hints=hints, force_hosts=["a"], force_nodes=["a"]) == ["a"]
    assert world.promised() == {}


def test_forced_hosts_skip_the_filters(world):
    world.report(host("a", vcpus=1, vcpus_used=1), host("b"))
    assert world.place("i1", force_hosts=["A"]) == ["a"]
    with pytest.raises(NoValidHost):
        world.place("i2", force_hosts=["a"], ignore_hosts=["a"])


def test_a_host_that_reported_in_between_is_looked_at_again(world, monkeypatch):
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "a", "vcpus_used": 4})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert world.promised() == {}


def test_losing_every_race_is_a_conflict(world, monkeypatch):
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit

    def always_overtaken(grant, transactions, **keep):
        other.report({"host": "a", "vcpus_used": 0})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", always_overtaken)
    with pytest.raises(Conflict, match="changed during each of 8 attempts"):
        world.ask("i1")
    assert world.promised() == {}


def test_a_hold_that_ended_costs_another_round(world, monkeypatch):
    world.report(host("a", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def paused(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        world.clock.advance(world.limits.hold_timeout_s + 1)
        assert other.place("thief") == ["a"]
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", paused)
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert world.promised() == {"a": ["thief"]}
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 1


def test_a_failed_commit_gives_the_table_back(world, monkeypatch):
    world.report(host("a"))

    def broken(grant, transactions, **keep):
        raise OSError("cable")

    monkeypatch.setattr(world.state, "commit", broken)
    with pytest.raises(OSError, match="cable"):
        world.ask("i1")
    monkeypatch.undo()
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 0
    assert world.place("i2") == ["a"]


def test_waiting_for_the_lock_is_bounded():
    world = World(acquire_timeout_s=5.0)
    world.report(host("a"))
    grant = world.state.acquire("default", timeout_s=1, seen=Seen())
    outcome = []

    def ask():
        with pytest.raises(ClusterLockTimeout, match="cluster default was not granted within 6 s"):
            world.ask("i1")
        outcome.append("timeout")

    asking = threading.Thread(target=ask)
    asking.start()
    while "default" not in world.scheduler._lines:
        threading.Event().wait(0.001)
    world.clock.advance(6.0)
    asking.join(10)
    assert outcome == ["timeout"]
    world.clock.advance(10.0)
    assert world.place("i2") == ["a"]
    with pytest.raises(StaleFencingToken):
        world.state.commit(grant, [])


@pytest.mark.parametrize(
    ("ordering", "asked", "head_start_s"),
    [
        ("priority", {"vcpus": 0, "memory_mb": 0, "priority": 100}, 2.0),
        ("priority", {"vcpus": 0, "memory_mb": 0}, 1.0),
        ("priority", {"vcpus": 4, "memory_mb": 8192, "priority": -100}, 0.0),
        ("fifo", {"vcpus": 0, "memory_mb": 0, "priority": 100}, 0.0),
    ],
)
def test_the_head_start_of_who_leads_counts_among_the_workers(
    monkeypatch, ordering, asked, head_start_s
):
    world = World(ordering=ordering, max_head_start_s=2.0)
    world.report(host("a"))
    acquire, given = world.state.acquire, []

    def spied(scope, **how):
        given.append(how["head_start_s"])
        return acquire(scope, **how)

    monkeypatch.setattr(world.state, "acquire", spied)
    world.ask("i1", **asked)
    assert given == [head_start_s]


def test_a_refusal_stands_only_if_what_was_promised_before_it_was_promised(world, monkeypatch):
    """Both are decided under one hold, and the host grows before the commit."""
    world.report(host("a", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "a", "vcpus": 2})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    blocking = world.state.acquire("default", timeout_s=1, seen=Seen())
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(world.place, each) for each in ("i1", "i2")]
        while "default" not in world.scheduler._lines:
            threading.Event().wait(0.001)
        while len(world.scheduler._lines["default"]._batch._line) < 2:
            threading.Event().wait(0.001)
        world.state.release(blocking)
        assert [each.result(10) for each in asking] == [["a"], ["a"]]


def test_a_failed_attempt_leaves_an_earlier_promise_in_force(world):
    world.report(host("a", memory_mb=4096))
    world.place("i1")
    with pytest.raises(NoValidHost):
        world.place("i1", "i2", memory_mb=3072)
    assert world.fleet.cluster("default").table.state(0).free_ram_mb == 3072


def test_more_promises_than_a_cluster_may_have_are_refused():
    world = World(max_promises=2)
    world.report(host("a"))
    world.place("i1", "i2")
    with pytest.raises(NoValidHost, match=r"2 promises already.*max_per_cluster"):
        world.place("i3")
    assert world.place("i1", "i2") == ["a", "a"], "who has promises keeps them"
    world.inventory.release(["i1"])
    assert world.place("i3") == ["a"]
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 2


def test_a_unit_that_breaks_fails_its_request_only(world, monkeypatch):
    world.report(host("a"))
    broken = world.pipeline.filters[1]

    def passes(hosts, spec):
        raise ZeroDivisionError

    monkeypatch.setattr(broken, "passes", passes, raising=False)
    with pytest.raises(ZeroDivisionError):
        world.ask("i1")
    monkeypatch.undo()
    assert world.place("i2") == ["a"]


def test_expired_promises_give_room(world):
    world.report(host("a", vcpus=1))
    world.place("i1")
    world.clock.advance(world.limits.promise_ttl_s + 1)
    world.report({"host": "a"})
    assert world.place("i2") == ["a"]
    assert world.promised() == {"a": ["i2"]}


def test_many_threads_and_workers_fill_a_fleet_exactly():
    world = World(max_batch=8)
    world.report(*(host(f"h{number}", vcpus=1 + number % 4) for number in range(20)))
    room = sum(1 + number % 4 for number in range(20))
    workers = [world, world.beside(), world.beside()]

    def ask(number: int) -> bool:
        try:
            workers[number % 3].place(f"i{number}")
        except NoValidHost:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        placed = sum(pool.map(ask, range(room + 25)))
    assert placed == room
    hosts = world.listing.hosts()["hosts"]
    assert all(each["promised"]["vcpus"] == each["vcpus"] for each in hosts)


def test_clusters_the_named_one_the_better_one_and_the_next(world):
    world.report(host("a", cluster="small", memory_mb=2048), host("b", cluster="large"))
    assert world.place("i1") == ["b"]
    assert world.place("i2", scheduler_hints={"cluster": ["small"]}) == ["a"]
    assert world.place("i3", memory_mb=7168) == ["b"]
    with pytest.raises(NoValidHost):
        world.place("i4", memory_mb=7168)
    with pytest.raises(RequestError, match=r"no cluster 'x'; known are large, small"):
        world.place("i5", scheduler_hints={"cluster": ["x"]})


def test_asking_again_finds_the_promise_in_its_cluster(world):
    world.report(host("a", cluster="one"), host("b", cluster="two", memory_mb=4096))
    assert world.place("i1") == ["a"]
    world.report({"host": "a", "memory_mb_used": 8192})
    assert world.beside().place("i1") == ["a"]


def test_instances_that_fit_no_single_cluster_are_spread(world):
    world.report(host("a", cluster="one", vcpus=2), host("b", cluster="two", vcpus=2))
    assert set(world.place("i1", "i2", "i3")) == {"a", "b"}
    placed = list(world.promised().values())
    assert sorted(len(each) for each in placed) == [1, 2]
    assert sorted(sum(placed, [])) == ["i1", "i2", "i3"]
    with pytest.raises(NoValidHost):
        world.place("j1", "j2")
    assert sorted(sum(world.promised().values(), [])) == ["i1", "i2", "i3"]
    assert len(world.place("i1", "i2", "i3")) == 3, "asked again, answered again"
    assert world.place("j3") is not None


def test_a_group_is_spread_over_clusters_too(world):
    world.report(host("a", cluster="one"), host("b", cluster="two"))
    group = {"policy": "anti-affinity", "members": ["i1", "i2"], "hosts": []}
    assert sorted(world.place("i1", "i2", instance_group=group)) == ["a", "b"]


def test_a_spread_that_one_cluster_refuses_promises_nothing(world, monkeypatch):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        if grant.scope == "two":
            other.report({"host": "b", "vcpus_used": 0})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    with pytest.raises(Conflict, match="several clusters"):
        world.place("i1", "i2")
    monkeypatch.undo()
    assert world.promised() == {}
    assert sorted(world.place("i1", "i2")) == ["a", "b"]


def test_no_hosts_at_all(world):
    with pytest.raises(NoValidHost):
        world.ask("i1")


def test_unanswered_decisions_are_known_until_they_are_answered(world):
    world.report(host("a"))
    decision = world.ask("i1")
    assert world.scheduler.unanswered() == ["i1"]
    world.scheduler.answered(decision)
    assert world.scheduler.unanswered() == []


def test_explain_says_why_and_promises_nothing(world):
    world.report(host("a"), host("b", vcpus=1, vcpus_used=1), host("c", memory_mb=512))
    found = world.scheduler.explain(request("i1"))["default"]
    verdicts = {each.host: each for each in found.verdicts}
    assert found.chosen == "a"
    assert verdicts["a"].weight is not None
    assert verdicts["b"].rejected_by == "CoreFilter"
    assert verdicts["c"].rejected_by == "RamFilter"
    assert "512" in verdicts["c"].reason
    assert world.promised() == {}
    only = world.scheduler.explain(request("i1"), hosts=["c"])["default"]
    assert [each.host for each in only.verdicts] == ["c"]


def test_a_promise_that_the_store_lost_is_forgotten(world, monkeypatch):
    """Kept at a commit that others had overtaken, then gone from the store without a word."""
    world.report(host("a"), host("b"))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "b", "vcpus_used": 1})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    [placed] = world.place("i1")
    replica = world.fleet.cluster("default")
    everything = world.state.changes("default", Seen())
    kept = [each for each in everything.entries if not each.key.startswith("p:")]
    lost = msgspec.structs.replace(everything, entries=kept, epoch="another life", reset=True)
    replica.apply(lost)
    assert replica.promises == {}
    assert replica.table.state(replica.table.row_of(f"uuid-{placed}")).num_instances == 0
