"""Requests that no host passes: they wait for a look that began after them, and share it."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import pytest

from scheduler_worker import events
from scheduler_worker.errors import NoValidHost, PlacementUnavailable, StateUnavailable, WorkerStops
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.providers import Inventory, ResourceProvider
from scheduler_worker.service.feed import refreshes
from scheduler_worker.service.feed.refreshes import Looker, RefreshRecords
from scheduler_worker.service.inventory.inventory import Inventory as HostInventory
from scheduler_worker.service.state.waits import ScopeWatch
from scheduler_worker.waiters import complete, keep_slot
from tests.support.feeds import CELL, MemorySource, barrier, feeder, look
from tests.support.interrupted import raising
from tests.support.patience import SOON_S, eventually
from tests.support.services import World, request
from tests.support.threads import in_thread

PATIENCE_S = 60.0


class Placement:
    """Placement, of which a test sees what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: Exception | None = None

    def look(self, queries: Any) -> None:
        self.asked.append(sorted(queries))
        if self.error is not None:
            raise self.error


class Cloud:
    """Two hosts of a source that are fed, and a worker that looks when the test says so."""

    def __init__(self) -> None:
        self.world = World()
        self.source = MemorySource(self.world.clock)
        self.source.put("a")
        self.source.put("b")
        self.feeder = feeder(self.world, self.source)
        self.feeder.run_due()
        self.placement = Placement()
        self.refresher = self.looker_of(self.feeder)
        self.last: Any = None
        """The last decision."""
        self.let_wait(self.world)

    @property
    def results(self) -> dict[str, int]:
        return self.world.observed.of(events.SECOND_LOOKS)

    def looker_of(self, fed: Any) -> Looker:
        world = self.world
        look = lambda queries: self.placement.look(queries)  # noqa: E731 - replaced later
        return Looker(fed, look, world.state, world.clock)

    def let_wait(self, world: World, look_timeout_s: float = 10.0) -> None:
        world.feed(barrier(world, self.feeder, look_timeout_s=look_timeout_s))

    def ask(self, uuid: str, world: World | None = None, **spec: Any) -> Callable[[], str]:
        """Ask for a host in a thread; what is returned waits for it."""

        def select() -> str:
            scheduler = (world or self.world).scheduler
            self.last = scheduler.select(request(uuid, **spec), remaining_s=PATIENCE_S)
            host: str = self.last.selections[0][0].service_host
            return host

        return partial(in_thread(select).result, SOON_S)

    def await_look(self) -> Callable[[], str]:
        """Ask for a host while all are full, until the request waits for a look."""
        self.fill()
        answer = self.ask("i1")
        self.await_askers(1)
        return answer

    def let_time_pass(self, world: World, seconds: float) -> None:
        """Until nobody waits any more; a wait that begins meanwhile begins with the later time."""
        world.clock.advance(seconds)

        def is_over() -> bool:
            world.clock.advance(1)
            return not world.scheduler.waiting_for_feed

        eventually(is_over)

    def await_askers(self, count: int, *worlds: World) -> None:
        waiting = [each.scheduler for each in worlds or (self.world,)]
        eventually(lambda: sum(each.waiting_for_feed for each in waiting) == count)

    def fill(self) -> None:
        for host in ("a", "b"):
            self.source.put(host, memory_mb_used=8192)
        self.world.clock.advance(2)
        self.feeder.run_due()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def test_what_changed_since_the_last_look_is_found_before_a_refusal(cloud):
    answer = cloud.await_look()
    cloud.source.put("b", memory_mb_used=0)
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"
    assert cloud.results == {"placed": 1}


def test_services_and_aggregates_are_looked_at_too(cloud):
    cloud.source.beat("a", forced_down=True)
    cloud.source.beat("b", disabled=True)
    cloud.world.clock.advance(10)
    cloud.feeder.run_due()
    cloud.source.beat("a")
    answer = cloud.ask("i1", zone="z")
    cloud.await_askers(1)
    cloud.source.aggregates = [
        Aggregate(id=1, name="z", hosts=("a",), metadata={"availability_zone": "z"})
    ]
    assert cloud.refresher.look_if_asked()
    assert answer() == "a"


def test_a_request_is_decided_again_only_once(cloud):
    answer = cloud.await_look()
    assert cloud.refresher.look_if_asked()
    with pytest.raises(NoValidHost):
        answer()
    assert not cloud.refresher.look_if_asked()
    assert cloud.results == {"refused": 1}


def test_all_that_wait_share_one_look_also_of_other_workers(cloud):
    cloud.fill()
    beside = cloud.world.beside()
    cloud.let_wait(beside)
    answers = [cloud.ask("i1"), cloud.ask("i2"), cloud.ask("i3", beside, memory_mb=2048)]
    cloud.await_askers(3, cloud.world, beside)
    outlines = cloud.source.calls["outline"]
    cloud.source.put("b", memory_mb_used=0)
    assert cloud.refresher.look_if_asked()
    assert [each() for each in answers] == ["b"] * 3
    assert cloud.source.calls["outline"] == outlines + 1
    [asked] = cloud.placement.asked
    assert [parse_qs(each)["resources"] for each in asked] == [
        ["MEMORY_MB:1024,VCPU:1"],
        ["MEMORY_MB:2048,VCPU:1"],
    ]
    assert not cloud.refresher.look_if_asked()


def test_a_look_that_began_before_a_request_does_not_count_for_it(cloud, monkeypatch):
    first = cloud.await_look()
    late: list[Callable[[], str]] = []

    def look(queries: Any) -> None:
        late.append(cloud.ask("i2"))
        cloud.await_askers(2)
        cloud.source.put("b", memory_mb_used=0)

    monkeypatch.setattr(cloud.placement, "look", look)
    cloud.refresher.look_if_asked()
    with pytest.raises(NoValidHost):
        first()
    cloud.await_askers(1)
    monkeypatch.undo()
    assert cloud.refresher.look_if_asked()
    assert late[0]() == "b"


def with_room(cloud: Cloud, **vcpus: int) -> None:
    """The hosts have inventories, with so many vCPUs left."""
    for name, left in vcpus.items():
        inventories = {"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=8192)}
        root = ResourceProvider(
            uuid=f"uuid-{name}", inventories=inventories, usages={"VCPU": 8 - left}
        )
        cloud.world.inventory.update_hosts(
            [HostReport(host=name, uuid=f"uuid-{name}", resource_providers=[root])]
        )


def test_hosts_are_looked_at_again_for_alternates_that_lack_only_room(cloud):
    with_room(cloud, a=0, b=8)
    answer = cloud.ask("i1", alternates=1)
    cloud.await_askers(1)
    assert cloud.world.reserved() == {"b": ["i1"]}
    cloud.placement.look = lambda queries: with_room(cloud, a=8)
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"
    assert [each.service_host for each in cloud.last.selections[0]] == ["b", "a"]
    assert [each.instance_uuid for each in cloud.last.claims] == ["i1"]
    assert cloud.world.reserved() == {"b": ["i1"]}


def test_hosts_are_looked_at_again_for_alternates_that_were_down(cloud):
    cloud.source.beat("a", forced_down=True)
    cloud.world.clock.advance(10)
    cloud.feeder.run_due()
    answer = cloud.ask("i1", alternates=1)
    cloud.await_askers(1)
    cloud.source.beat("a")
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"
    assert [each.service_host for each in cloud.last.selections[0]] == ["b", "a"]
    assert cloud.results == {"alternates": 1}


def test_alternates_that_there_are_not_are_not_waited_for(cloud):
    with_room(cloud, a=8, b=8)
    answer = cloud.ask("i1", alternates=2)
    answer()
    assert len(cloud.last.selections[0]) == 2


def test_a_stop_ends_present_and_future_waits_and_gives_back_what_is_reserved(cloud):
    with_room(cloud, a=0, b=8)
    answer = cloud.ask("i1", alternates=1)
    cloud.await_askers(1)
    cloud.world.scheduler.stop_waiting()
    with pytest.raises(WorkerStops):
        answer()
    with pytest.raises(WorkerStops):
        cloud.ask("i2", alternates=1)()
    assert cloud.world.reserved() == {}


def test_nobody_waits_for_a_look_longer_than_the_setting(cloud):
    answer = cloud.await_look()
    cloud.let_time_pass(cloud.world, 10)
    with pytest.raises(NoValidHost):
        answer()
    assert cloud.results == {"late": 1}


@pytest.mark.parametrize(
    ("timeout_s", "left_s", "waits_s"),
    [(10, 60, [10]), (10, 20, [10]), (10, 8, [4]), (10, 0, []), (10, -1, []), (0, 60, [])],
)
def test_a_wait_leaves_half_of_the_callers_time_for_what_comes_after_it(
    cloud, monkeypatch, timeout_s, left_s, waits_s
):
    world, ends_s = World(), []
    now_s = world.clock.monotonic_s()

    async def until(_self, _check, until_s, _yield_slot):
        ends_s.append(until_s - now_s)

    monkeypatch.setattr(ScopeWatch, "until", until)
    fed = feeder(world, cloud.source)
    waiting = barrier(world, fed, ready_timeout_s=timeout_s, look_timeout_s=timeout_s)
    assert complete(waiting.refresh((), now_s + left_s, keep_slot)) is False
    assert complete(waiting.until_ready(now_s + left_s, keep_slot)) is not None
    assert ends_s == pytest.approx(waits_s * 2)


def test_without_the_setting_requests_are_refused_at_once(cloud):
    cloud.fill()
    cloud.let_wait(cloud.world, look_timeout_s=0)
    with pytest.raises(NoValidHost):
        cloud.world.place("i1")
    assert not cloud.refresher.look_if_asked()


@pytest.mark.parametrize("away", ["placement", "api"])
def test_what_is_away_does_not_keep_what_the_others_show(cloud, caplog, away):
    answer = cloud.await_look()
    if away == "placement":
        cloud.placement.error = PlacementUnavailable("it does not answer")
    else:
        cloud.source.down = {"api"}
    cloud.source.put("b", memory_mb_used=0)
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"
    assert ("Placement was not looked at" in caplog.text) == (away == "placement")


def test_a_look_whose_hosts_could_not_be_stored_is_repeated(cloud, monkeypatch):
    answer = cloud.await_look()
    cloud.source.put("b", memory_mb_used=0)
    cloud.world.clock.advance(2)
    with monkeypatch.context() as patch:
        patch.setattr(HostInventory, "update_hosts", raising(StateUnavailable("away")))
        cloud.refresher.run_due()
    assert cloud.world.scheduler.waiting_for_feed == 1
    cloud.refresher.run_due()
    assert answer() == "b"


def test_a_look_reads_a_cell_from_its_first_answer_after_an_outage(cloud, monkeypatch):
    answer = cloud.await_look()
    cloud.source.down = {CELL}
    look(cloud.feeder, world=cloud.world)
    cloud.source.down = set()
    cloud.source.beat("a", disabled=True)
    with monkeypatch.context() as patch:  # the round does not come to its end
        patch.setattr(HostInventory, "update_hosts", raising(StateUnavailable("away")))
        look(cloud.feeder, world=cloud.world)
    cloud.source.put("b", memory_mb_used=0)
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"


def test_the_worker_that_takes_over_looks_for_those_that_wait(cloud):
    answer = cloud.await_look()
    begun = RefreshRecords()
    assert begun.begin(cloud.world.state) is not None  # and then this worker was killed
    cloud.feeder.stop()
    assert cloud.source.calls["close"] == 1
    other = feeder(cloud.world, cloud.source, name="other")
    cloud.source.put("b", memory_mb_used=0)
    other.run_due()
    assert cloud.looker_of(other).look_if_asked()
    assert answer() == "b"


def test_a_look_during_which_the_lead_was_lost_ends_no_wait(cloud, monkeypatch):
    answer = cloud.await_look()
    monkeypatch.setattr(cloud.placement, "look", lambda _: cloud.feeder.stop())
    assert cloud.refresher.look_if_asked()
    monkeypatch.undo()
    other = feeder(cloud.world, cloud.source, name="other")
    cloud.source.put("b", memory_mb_used=0)
    other.run_due()
    assert cloud.looker_of(other).look_if_asked(), "it is still wanted"
    assert answer() == "b"


def test_a_look_that_the_state_interrupts_is_made_again(cloud):
    answer = cloud.await_look()
    cloud.placement.error = StateUnavailable("no store")
    with pytest.raises(StateUnavailable):
        cloud.refresher.look_if_asked()
    cloud.placement.error = None
    cloud.source.put("b", memory_mb_used=0)
    assert cloud.refresher.look_if_asked()
    assert answer() == "b"


def test_an_end_counts_for_all_that_began_before_it_and_for_no_later_one(world):
    ask = partial(RefreshRecords().ask, world.state)
    begin = partial(RefreshRecords().begin, world.state)
    finish = partial(RefreshRecords().finish, world.state)
    assert ask(["a"]) == 1
    assert begin() == (1, {"a"})
    assert ask(["b"]) == 2
    assert begin() == (2, {"a", "b"})
    finish(1)
    assert begin() == (3, {"b"}), "the second one's worker may have died"
    assert ask(["c"]) == 4
    finish(3)
    assert begin() == (4, {"c"})
    finish(4)
    finish(2)
    assert begin() is None


def test_a_question_that_is_repeated_is_asked_again_however_many_there_are(world, monkeypatch):
    monkeypatch.setattr(refreshes, "_MOST_QUERIES", 2)
    records = RefreshRecords()
    records.ask(world.state, ["a", "b"])
    records.begin(world.state)
    records.ask(world.state, ["b", "c"])
    records.finish(world.state, 1)
    assert records.begin(world.state) == (2, {"b"})


def test_a_worker_that_does_not_feed_does_not_look(cloud):
    cloud.await_look()
    cloud.feeder.stop()
    outlines = cloud.source.calls["outline"]
    assert cloud.refresher.run_due() > 0
    assert cloud.source.calls["outline"] == outlines
    cloud.world.scheduler.stop_waiting()


@pytest.mark.parametrize("is_read_in_time", [True, False])
def test_requests_wait_until_all_hosts_are_known_or_the_timeout_is_over(cloud, is_read_in_time):
    world = World()
    fed = feeder(world, cloud.source)
    world.feed(barrier(world, fed, ready_timeout_s=20))
    answer = cloud.ask("i1", world)
    cloud.await_askers(1, world)
    if is_read_in_time:
        fed.run_due()
        assert answer() in {"a", "b"}
    else:
        cloud.let_time_pass(world, 20)
        with pytest.raises(NoValidHost, match="have not been read yet"):
            answer()
