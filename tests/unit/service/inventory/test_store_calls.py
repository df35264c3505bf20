"""How often a report uses the store, and how often it is merged."""

from collections import Counter
from typing import Any

import pytest

from scheduler_worker.service.inventory import reports
from tests.support.interrupted import before_next
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a"), host("b"))
    return world


@pytest.fixture
def calls(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The names of the store's methods that are called, and of each merge."""
    found: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def call(*arguments: Any, **how: Any) -> Any:
            found[name] += 1
            return method(*arguments, **how)

        monkeypatch.setattr(owner, name, call)

    for name in ("changes", "write"):
        counted(world.state, name)
    counted(reports, "merged")
    return found


@pytest.mark.parametrize("others_write", [False, True])
def test_a_report_of_one_cluster_takes_three_calls(world, calls, others_write):
    world.place("i1")
    if others_write:
        world.beside().report({"host": "b", "vcpus_used": 2})
    calls.clear()
    versions = world.report(
        {"host": "a", "vcpus_used": 1, "instances": [{"uuid": "i1"}]},
        {"host": "b", "vcpus_used": 3},
    )
    assert calls == {"changes": 2, "write": 1, "merged": 2}
    replica = world.fleet.cluster("default")
    assert replica.seen.version == versions["default"], "what it wrote is not read back"
    assert replica.table.find("b")[0].vcpus_used == 3
    assert world.reserved() == {}


def test_a_report_reads_no_cluster_but_its_own_and_all_of_them_now_and_then(world, calls):
    world.report(*(host(f"h{number}", cluster=f"c{number}") for number in range(20)))
    calls.clear()
    world.report({"host": "a", "vcpus_used": 1})
    world.report({"uuid": "uuid-h7", "host": "renamed", "cluster": "c7"})
    assert calls["changes"] == 4
    world.clock.advance(10)
    world.report({"host": "a", "vcpus_used": 2})
    assert calls["changes"] >= 4 + 20


def test_a_first_report_is_merged_and_written_once(world, calls):
    world.report(*(host(f"new-{number}") for number in range(100)))
    assert calls["merged"] == 100
    assert calls["write"] == 3, "its move begins, arrives and ends; nothing is left to write"
    assert world.fleet.cluster("default").table.find("new-7")[0].vcpus == 4


def test_a_report_that_others_overtook_is_planned_again(world, monkeypatch):
    other = world.beside()
    late = {"host": "a", "memory_mb_used": 5}
    before_next(monkeypatch, world.state, "write", lambda: other.report(late))
    world.report({"host": "a", "vcpus_used": 3})
    record = world.fleet.cluster("default").table.find("a")[0]
    assert (record.vcpus_used, record.memory_mb_used) == (3, 5)


def test_what_others_wrote_in_between_is_not_missed(world, monkeypatch):
    other = world.beside()
    late = {"host": "b", "vcpus_used": 2}
    before_next(monkeypatch, world.state, "write", lambda: other.report(late))
    version = world.report({"host": "a", "vcpus_used": 3})["default"]
    replica = world.fleet.cluster("default")
    assert replica.seen.version < version
    replica.refresh(world.state)
    assert replica.seen.version >= version
    assert [replica.table.find(name)[0].vcpus_used for name in "ab"] == [3, 2]
