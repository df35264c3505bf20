"""Moves of hosts between clusters: no double booking, and reservations move along."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.ports import Guard, Put, Seen, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.moves import ABANDONED_AFTER_S, SCOPE
from tests.support.interrupted import Died, Interrupted, before_next, die
from tests.support.services import World, host

WRITES = 8
"""How many writes a report needs that moves its host, with the report itself."""
LEAVING = f"{records.DEPARTURE}uuid-a"
MOVED = host("a", cluster="two")


def full(name: str, cluster: str) -> dict[str, Any]:
    return host(name, cluster=cluster, vcpus_used=4)


@pytest.fixture
def world() -> World:
    """Host a, of 4 vCPUs, in cluster one: two instances reserved, one absorbed, one known."""
    world = World(reservation_ttl_s=600.0)
    world.report(host("a", cluster="one"), full("b", "two"))
    world.place("was", request_id="req-was")
    listed = [{"uuid": "was"}, {"uuid": "known"}]
    world.report({"host": "a", "vcpus_used": 1, "instances": listed})
    world.place("held", request_id="req-held")
    world.place("confirmed")
    world.inventory.confirm(["confirmed"])
    return world


def interrupted(world: World, at: int, act: Callable[[], object], **how: Any) -> World:
    return World(
        state=Interrupted(world.state, at=at, act=act, **how),
        clock=world.clock,
        reservation_ttl_s=world.limits.reservation_ttl_s,
    )


def die_moving(world: World, at: int, report: dict[str, Any] = MOVED) -> None:
    """A worker dies before one of the writes of a report that moves its host."""
    with pytest.raises(Died):
        interrupted(world, at, die).report(report)


def homes(world: World) -> list[str]:
    """The clusters that have host a."""
    found = world.beside().hosts()
    return [each["cluster"] for each in found if each["host"] == "a"]


def fill(world: World, names: str = "stuvwxyz") -> list[str]:
    """Place as many instances as can be; those that got host a."""
    placed = []
    for name in names:
        with contextlib.suppress(NoValidHost):
            placed += world.place(name)
    return placed


def unfinished(world: World) -> list[str]:
    """The departures in any cluster."""
    looked = [
        each
        for cluster in ("one", "two", "three")
        for each in world.state.changes(cluster, Seen()).entries
    ]
    return [each.key for each in looked if each.value and each.key.startswith(records.DEPARTURE)]


def check(world: World, cluster: str = "two") -> None:
    """Host a is in that cluster alone, with all reservations; nothing is left over."""
    fresh = world.beside()
    assert homes(fresh) == [cluster]
    found = fresh.reservations()
    assert sorted(each["instance_uuid"] for each in found) == ["confirmed", "held"]
    assert {each["cluster"] for each in found} == {cluster}
    assert fresh.place("was", request_id="req-was") == ["a"], "the remembered answer went along"
    assert fresh.place("held", request_id="req-held") == ["a"]
    [a] = (each for each in fresh.hosts(cluster) if each["host"] == "a")
    assert a["instances"] == ["known", "was"]
    assert fresh.fleet.cluster(cluster).table.find("a")[0].cluster == cluster
    assert unfinished(fresh) == []
    assert fill(fresh) == ["a"], "four vCPUs, of which one is used and two are reserved"


class TestOneMove:
    def test_everything_goes_along(self, world: World) -> None:
        before = {each["id"]: each for each in world.reservations()}
        world.report(MOVED)
        for each in world.reservations():
            assert each == before[each["id"]] | {"cluster": "two"}
        assert ("moved", 2) in world.observed.events
        assert world.state.changes(SCOPE, Seen()).entries == []
        check(world)

    def test_it_takes_so_many_writes(self, world: World) -> None:
        mover = interrupted(world, -1, die)
        mover.report(MOVED)
        assert mover.state.writes == WRITES

    def test_nothing_stays_of_a_host_without_instances(self) -> None:
        world = World()
        world.inventory.sync_instances("a", [])  # which waits for the host
        for cluster in ("one", "two"):
            world.report(host("a", cluster=cluster, instances=[]))
        for left in ("default", "one"):
            entries = world.state.changes(left, Seen()).entries
            assert [each for each in entries if each.key.startswith(records.INSTANCES)] == []

    def test_there_and_back(self, world: World) -> None:
        for cluster in ("two", "three", "one", "two", "one"):
            world.report(host("a", cluster=cluster))
        check(world, "one")

    def test_the_report_that_moves_a_host_absorbs_what_it_lists(self, world: World) -> None:
        listed = [{"uuid": uuid} for uuid in ("was", "known", "held")]
        world.report(MOVED | {"vcpus_used": 2, "instances": listed})
        assert world.reserved() == {"a": ["confirmed"]}
        assert fill(world) == ["a"]

    def test_an_older_report_does_not_move_its_host_back(self, world: World) -> None:
        now_s = world.clock.time_s()
        world.report(MOVED | {"updated_at": now_s})
        world.report(host("a", cluster="one", updated_at=now_s - 5))
        check(world)

    def test_a_report_that_says_only_what_changed_moves_its_host(self, world: World) -> None:
        world.report({"host": "a", "uuid": "uuid-a", "cluster": "two"})
        check(world)

    def test_a_node_made_again_in_another_cluster_leaves_the_old_one(self, world: World) -> None:
        world.report(MOVED | {"uuid": "another", "vcpus_used": 1})
        check(world)

    def test_another_node_of_the_host_stays(self) -> None:
        world = World()
        nodes = [host("a", uuid=f"uuid-{node}", nodename=node, cluster="one") for node in "xy"]
        world.report(*nodes)
        world.inventory.update_instances("a", {"i": {"uuid": "i"}})
        world.report(nodes[0] | {"cluster": "two"})
        known = {each["cluster"]: each["instances"] for each in world.hosts()}
        assert known == {"one": ["i"], "two": ["i"]}

    def test_many_at_once(self) -> None:
        world = World()
        names = [f"h{number}" for number in range(1_200)]
        world.report(*(host(name, cluster="one") for name in names))
        placed = world.place(*(f"i{number}" for number in range(300)))
        world.report(*(host(name, cluster="two") for name in names))
        assert len(world.hosts("two")) == len(names)
        assert world.hosts("one") == []
        assert sorted(sum(world.reserved().values(), [])) == sorted(f"i{n}" for n in range(300))
        assert len(placed) == 300


@pytest.mark.parametrize("after", [False, True], ids=["unwritten", "written"])
@pytest.mark.parametrize("at", range(WRITES))
class TestDeadMover:
    """The moving worker dies before, or just after, one of its writes."""

    @pytest.fixture(autouse=True)
    def dead(self, world: World, at: int, after: bool) -> None:
        with pytest.raises(Died):
            interrupted(world, at, die, after=after).report(MOVED)

    def test_no_host_is_overcommitted_meanwhile(self, world: World) -> None:
        assert len(fill(world.beside())) <= 1

    def test_a_report_of_any_host_finishes_it(self, world: World) -> None:
        world.clock.advance(ABANDONED_AFTER_S + 1)
        other = world.beside()
        other.report({"host": "b"})
        [cluster] = homes(other)
        other.report(MOVED)
        check(other)
        assert cluster in {"one", "two"}

    def test_its_own_next_report_finishes_it_at_once(self, world: World) -> None:
        world.beside().report({"host": "a"})
        assert len(homes(world)) == 1
        world.beside().report(host("a", cluster="three"))
        check(world, "three")

    def test_a_reservation_can_be_released(self, world: World) -> None:
        assert world.beside().inventory.release(["held", "unknown"]) == 1
        assert world.beside().inventory.release(["held"]) == 1, "as before"
        assert "held" not in str(world.reserved())
        world.beside().report(MOVED)
        assert world.reserved() == {"a": ["confirmed"]}

    def test_a_reservation_can_be_confirmed(self, world: World) -> None:
        world.clock.advance(500)
        assert world.beside().inventory.confirm(["held"]) == 1
        world.clock.advance(400)
        world.beside().report(MOVED)
        assert world.reserved() == {"a": ["held"]}

    def test_a_reservation_expires_when_it_would_have(self, world: World) -> None:
        world.clock.advance(599)
        world.beside().report(MOVED)
        assert world.reserved() == {"a": ["confirmed", "held"]}
        world.clock.advance(2)
        assert world.reserved() == {}

    def test_a_reservation_expires_during_the_move(self, world: World) -> None:
        world.clock.advance(601)
        world.beside().report(MOVED)
        assert world.reserved() == {}
        assert len(fill(world)) == 3

    def test_a_repeated_request_gets_its_host(self, world: World) -> None:
        other = world.beside()
        assert other.place("held", request_id="req-held") == ["a"]
        assert other.place("was", request_id="req-was") == ["a"]
        other.report(MOVED)
        check(other)

    def test_instances_are_announced_and_deleted(self, world: World) -> None:
        other = world.beside()
        other.inventory.update_instances("a", {"held": {"uuid": "held"}})
        other.inventory.delete_instance("a", "confirmed")
        other.report(MOVED | {"vcpus_used": 2})
        assert other.reserved() == {}
        [a] = other.hosts("two")[:1]
        assert a["instances"] == ["held", "known", "was"]

    def test_the_host_can_be_removed(self, world: World) -> None:
        world.beside().inventory.remove_hosts([("a", None)])
        assert homes(world) == []
        assert world.reserved() == {}
        world.clock.advance(ABANDONED_AFTER_S + 1)
        world.report({"host": "b"})
        assert homes(world) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(WRITES))
class TestMeanwhile:
    """Another worker acts between two writes of a moving worker, which then continues."""

    @pytest.fixture
    def move(self, world: World, at: int, after: bool) -> Callable[..., None]:
        def move(act: Callable[[], object]) -> None:
            interrupted(world, at, act, after=after).report(MOVED)

        return move

    @pytest.mark.parametrize("clusters", [["one"], ["two"], ["three"], ["three", "one"]])
    def test_other_moves(self, world: World, move: Callable[..., None], clusters: Any) -> None:
        other = world.beside()
        move(lambda: [other.report(host("a", cluster=each)) for each in clusters])
        [found] = homes(world)
        check(world, found)
        assert found in {*clusters, "two"}

    def test_placing(self, world: World, move: Callable[..., None]) -> None:
        placed: list[str] = []
        move(lambda: placed.extend(fill(world.beside())))
        placed += fill(world.beside(), "STUVWXYZ")
        assert placed == ["a"]
        assert len(world.reserved()["a"]) == 3

    def test_reports_that_name_no_cluster(self, world: World, move: Callable[..., None]) -> None:
        other = world.beside()
        move(lambda: other.report({"host": "a"}))
        check(world)

    def test_releasing(self, world: World, move: Callable[..., None]) -> None:
        released: list[int] = []
        move(lambda: released.append(world.beside().inventory.release(["held"])))
        assert released == [1]
        assert world.reserved() == {"a": ["confirmed"]}

    def test_removing(self, world: World, move: Callable[..., None]) -> None:
        other = world.beside()
        move(lambda: other.inventory.remove_hosts([("a", None)]))
        assert homes(world) in ([], ["two"]), "its report may come later than its removal"
        assert world.reserved() == {}
        assert unfinished(world) == []


class TestInFlight:
    """Writes that were under way when the move began, and arrive late."""

    def test_a_reservation_that_changes_while_it_is_packed_moves_along(self, world: World) -> None:
        [held] = [
            each
            for each in world.state.changes("one", Seen()).entries
            if each.key.startswith(records.RESERVATION + "held")
        ]
        longer_s = world.clock.time_s() + 5_000

        def confirmed() -> None:
            put = Put(held.key, held.value, longer_s)
            written = world.state.write("one", [Transaction([put], [Guard(*held[:2])])])
            assert written.applied == (True,)

        interrupted(world, 2, confirmed).report(MOVED)
        check(world)

    def test_an_announcement_follows_its_host(self, world: World) -> None:
        other = world.beside()
        announcing = interrupted(world, 0, lambda: other.report(full("b", "one")))
        announcing.inventory.update_instances("b", {"new": {"uuid": "new"}})
        for cluster, count in (("one", 1), ("two", 0)):
            looked = world.state.changes(cluster, Seen()).entries
            assert [each.key for each in looked].count(records.INSTANCES + "b") == count

    def test_what_ends_after_the_arrival_stays_ended(self, world: World) -> None:
        die_moving(world, 4)
        key = f"{records.RESERVATION}held@uuid-a"
        world.state.write("two", [Transaction([records.gone(key)])])
        world.clock.advance(ABANDONED_AFTER_S + 1)
        world.beside().report({"host": "b"})
        assert world.reserved() == {"a": ["confirmed"]}

    def test_a_late_end_of_one_departure_does_not_end_the_next(self, world: World) -> None:
        def goes_on() -> None:
            world.beside().report(host("a", cluster="one"))
            die_moving(world, 4, host("a", cluster="three"))

        interrupted(world, 4, goes_on).report(MOVED)
        check(world)

    def test_what_a_server_forgets_before_the_departure_is_dropped_is_not_lost(
        self, world: World
    ) -> None:
        """The server of both clusters fails over, and is as it was before the arrival."""

        def fails_over() -> None:
            [departure] = (
                records.read_departure(each.value)
                for each in world.state.changes("one", Seen()).entries
                if each.value and each.key.startswith(records.DEPARTURE)
            )
            assert departure.has_arrived
            unmarked = msgspec.structs.replace(departure, has_arrived=False)
            world.state.write("one", [Transaction([records.put_departure(unmarked)])])
            arrived = [
                each.key
                for each in world.state.changes("two", Seen()).entries
                if each.value and "uuid-b" not in each.key and each.key.rpartition("/")[2] != "b"
            ]
            world.state.write("two", [Transaction([*map(records.gone, arrived)])])

        interrupted(world, 5, fails_over).report(MOVED)
        check(world)

    def test_a_step_of_a_move_that_has_ended_is_not_taken(self, world: World) -> None:
        """It read the clusters after another had finished the move and gone on."""
        other = world.beside()
        mover = interrupted(world, -1, die)
        look, late = mover.state.changes, iter([True])

        def look_late(scope: str, seen: Seen) -> Any:
            if scope == "one" and mover.state.writes == 1 and next(late, False):
                for cluster in ("two", "three", "one"):
                    other.report(host("a", cluster=cluster))
            return look(scope, seen)

        mover.state.changes = look_late
        mover.report(MOVED)
        assert next(late, None) is None
        check(world, homes(world)[0])


class TestRequests:
    """A host moves after a request has looked for it, and before the request is decided."""

    @pytest.fixture
    def room(self, world: World) -> World:
        """Elsewhere the instances could go, if they were taken for new ones."""
        world.report(host("c", cluster="one", memory_mb=4096))
        return world

    def late(self, world: World, act: Callable[[], object], call: str, scope: str) -> World:
        """A worker; once, before it makes that call, something else happens."""
        asking = interrupted(world, -1, die)
        before_next(pytest.MonkeyPatch(), asking.state, call, act, scope=scope)
        return asking

    def test_before_the_lock(self, room: World) -> None:
        asking = self.late(room, lambda: room.beside().report(MOVED), "acquire", "one")
        asking.report({"host": "b"})
        assert asking.place("held", request_id="req-held") == ["a"]
        assert room.reserved()["a"] == ["confirmed", "held"]

    def test_before_the_lock_while_its_mover_is_dead(self, room: World) -> None:
        def dies() -> None:
            die_moving(room, 3)

        asking = self.late(room, dies, "acquire", "one")
        assert asking.place("held", request_id="req-held") == ["a"]
        assert "c" not in room.reserved()

    @pytest.mark.parametrize("is_left_behind", [True, False])
    def test_before_the_lock_when_it_was_not_reserved_yet(
        self, room: World, is_left_behind: bool
    ) -> None:
        def placed_and_moved() -> None:
            assert room.place("copy", request_id="req", ignore_hosts=["c"]) == ["a"]
            if is_left_behind:
                die_moving(room, 3)
            else:
                room.beside().report(MOVED)

        asking = self.late(room, placed_and_moved, "acquire", "one")
        assert asking.place("copy", request_id="req") == ["a"]
        assert "c" not in room.reserved()

    def test_before_the_locks_of_several_clusters(self, room: World) -> None:
        hint = {"scheduler_hints": {"cluster": ["one"]}}
        room.report(MOVED)
        assert room.place("apart", request_id="req", **hint) == ["c"]
        back = host("a", cluster="one")
        asking = self.late(room, lambda: room.beside().report(back), "acquire", "two")
        assert asking.place("held", "apart", request_id="req-held") == ["a", "c"]
        assert room.reserved() == {"a": ["confirmed", "held"], "c": ["apart"]}

    def test_between_the_looks_at_two_clusters(self, room: World) -> None:
        room.report(MOVED, host("d", cluster="three", memory_mb=65536))
        room.clock.advance(room.limits.intent_ttl_s + 1)
        back = host("a", cluster="one")
        asking = self.late(room, lambda: room.beside().report(back), "changes", "two")
        room.report({"host": "d"}, {"host": "c"})
        assert asking.place("held", request_id="req-held") == ["a"]
        assert set(room.reserved()) == {"a"}


class TestNewHosts:
    WRITES = 5

    @pytest.fixture
    def empty(self) -> World:
        world = World()
        world.report(full("b", "one"), full("c", "two"))
        return world

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("at", range(WRITES))
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (MOVED, host("a", cluster="one")),
            (host("a", cluster="one"), host("a", cluster="one", uuid="again")),
        ],
        ids=["two clusters", "two uuids"],
    )
    def test_of_two_first_reports_one_wins(
        self, empty: World, at: int, after: bool, first: Any, second: Any
    ) -> None:
        other = empty.beside()
        interrupted(empty, at, lambda: other.report(second), after=after).report(first)
        assert len(homes(empty)) == 1
        assert unfinished(empty) == []
        assert len(fill(empty)) == 4

    @pytest.mark.parametrize("at", range(WRITES))
    def test_a_first_report_that_died_is_made_again(self, empty: World, at: int) -> None:
        empty.inventory.update_instances("a", {"waits": {"uuid": "waits"}})
        with contextlib.suppress(Died):
            interrupted(empty, at, die).report(MOVED)
        empty.beside().report(host("a", cluster="three"))
        [a] = empty.beside().hosts("three")
        assert a["instances"] == ["waits"]
        assert len(homes(empty)) == 1
        assert unfinished(empty) == []


class TestLostTails:
    """A server that fails over forgets its last writes, and another one its own."""

    def test_a_departure_without_its_move_arrives_all_the_same(self, world: World) -> None:
        die_moving(world, 3)
        world.state._scopes.pop(SCOPE)
        world.clock.advance(ABANDONED_AFTER_S + 1)
        world.beside().report({"host": "b"})
        check(world)

    @pytest.mark.parametrize("on", ["three", "one"])
    def test_a_departure_that_came_back_after_its_arrival_is_dropped(
        self, world: World, on: str
    ) -> None:
        die_moving(world, 4)
        [left] = (
            each for each in world.state.changes("one", Seen()).entries if each.key == LEAVING
        )
        world.beside().report(MOVED)
        world.beside().report(host("a", cluster="three"))
        world.beside().inventory.release(["held"])
        world.beside().place("new")
        world.state.write("one", [Transaction([Put(LEAVING, left.value)])])
        world.clock.advance(ABANDONED_AFTER_S + 1)
        world.beside().report({"host": "b"} if on == "three" else host("a", cluster=on))
        assert homes(world) == [on]
        assert world.reserved() == {"a": ["confirmed", "new"]}
        assert unfinished(world) == []

    def test_an_arrival_that_is_forgotten_before_the_departure_is_dropped_is_made_again(
        self, world: World
    ) -> None:
        def keys() -> set[str]:
            found = world.state.changes("two", Seen()).entries
            return {each.key for each in found if each.value is not None}

        before = keys()

        def forget() -> None:
            world.state.write("two", [Transaction(list(map(records.gone, keys() - before)))])

        interrupted(world, 3, forget, after=True).report(MOVED)
        check(world)

    def test_a_host_that_came_back_in_its_old_cluster_leaves_again(self, world: World) -> None:
        kept = [
            Put(each.key, each.value, world.clock.time_s() + 600)
            for each in world.state.changes("one", Seen()).entries
            if each.value is not None and each.key.startswith((records.HOST, records.RESERVATION))
        ]
        world.report(MOVED)
        world.state.write("one", [Transaction(kept)])
        world.beside().report(MOVED)
        check(world)


def test_an_answer_that_is_released_while_its_node_is_made_again_stays_released(
    world: World,
) -> None:
    reporter = interrupted(world, 0, lambda: world.beside().inventory.release(["was"]))
    reporter.report(host("a", cluster="one", uuid="another", vcpus_used=1))
    answers = records.ANSWER
    found = world.state.changes("one", Seen()).entries
    assert [each.key for each in found if each.value and each.key.startswith(answers)] == []
