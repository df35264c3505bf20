"""Decisions are compared with the hosts' sources before they are answered."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost, PlacementUnavailable
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters
from scheduler_worker.service.feed.refreshes import Looker
from scheduler_worker.service.feed.services import ServiceCheck
from scheduler_worker.service.feed.settings import FeedSettings
from scheduler_worker.service.requests import alternates
from scheduler_worker.service.requests.claims import PlacementPorts
from scheduler_worker.service.requests.verifier import VerifierPorts, deciding_traits
from tests.support.feeds import CELL, OTHER_CELL, MemorySource, barrier, feeder
from tests.support.hosts import request_spec
from tests.support.interrupted import before_next
from tests.support.patience import SOON_S, eventually
from tests.support.placement_model import PlacementModel
from tests.support.services import World
from tests.support.threads import Threads, in_thread

NAMES = "abcde"
FORBIDS = {"vcpus": 1, "memory_mb": 1024, "extra_specs": {"trait:CUSTOM_Y": "forbidden"}}


class Trees:
    """Placement: where each host has a trait, of which the records do not know yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked: list[set[str]] = []
        self.stores = True
        self.error: Exception | None = None

    def read_again(self, providers: Collection[str]) -> None:
        pass

    def verify(
        self, roots: Collection[str], traits: Collection[str] | None = None
    ) -> Mapping[str, Sequence[ResourceProvider]]:
        self.asked.append(set(roots))
        if self.error is not None:
            raise self.error
        if "uuid-a" not in roots:
            return {}
        if self.stores:
            self.store()
        return {"uuid-a": [ResourceProvider(uuid="uuid-a", traits=("CUSTOM_Y",))]}

    def store(self) -> None:
        """Have the records know the trait, as when another request has read it."""
        provider = {"uuid": "uuid-a", "traits": ["CUSTOM_Y"]}
        self._world.report({"uuid": "uuid-a", "host": "a", "resource_providers": [provider]})


class Cloud:
    """Five fed hosts, of which ``a`` is the best; ``e`` is in a cell of its own."""

    def __init__(self, **ports: Any) -> None:
        self.world = World(**ports)
        self.source = MemorySource(self.world.clock)
        for at, name in enumerate(NAMES):
            part = OTHER_CELL if name == "e" else CELL
            self.source.put(name, part=part, memory_mb=8192 - 1024 * at)
        feeder(self.world, self.source).run_due()
        self.source.calls.clear()
        self.trees = Trees(self.world)
        self.world.feed(verifying=VerifierPorts(self.check_of(self.world), self.trees))

    def check_of(self, world: World) -> ServiceCheck:
        return ServiceCheck(
            self.source, world.fleet, world.inventory.update_hosts, world.clock, FeedSettings()
        )

    def force_down(self, *hosts: str) -> None:
        for each in hosts:
            self.source.beat(each, forced_down=True)

    def hosts(self, uuid: str = "i1", **asked: Any) -> list[str]:
        """The chosen host and its alternates."""
        [found] = self.world.ask(uuid, **asked).selections
        return [each.service_host for each in found]

    def results(self) -> list[str]:
        return [each[1] for each in self.world.observed.events if each[0] == "verified"]


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def test_hosts_that_are_as_known_cost_one_question(cloud):
    assert cloud.hosts(alternates=2) == ["a", "b", "c"]
    assert cloud.source.calls == {"connect": 1, "services of some": 1}
    assert cloud.trees.asked == [], "plain requests do not depend on trees"
    assert cloud.results() == ["known"]


def test_hosts_that_were_forced_down_a_moment_ago_are_not_answered(cloud):
    """One change has all services of the cell read."""
    cloud.force_down("a", "b", "c")
    assert cloud.hosts() == ["d"]
    assert cloud.world.reserved() == {"d": ["i1"]}
    assert cloud.source.calls["services"] == 1
    assert cloud.results() == ["changed", "known"]


@pytest.mark.parametrize("facts", [{"disabled": True}, {"forced_down": True}])
def test_an_alternate_that_has_changed_is_replaced(cloud, facts):
    cloud.source.beat("b", **facts)
    assert cloud.hosts(alternates=2) == ["a", "c", "d"]
    assert cloud.world.observed.outcomes[-1].attempts == 1


def test_an_alternate_that_cannot_be_replaced_is_left_out(cloud):
    decision = cloud.world.ask("i1", alternates=2)
    [answered] = alternates.without(decision, {"uuid-b"}).selections
    assert [each.service_host for each in answered] == ["a", "c"]


def test_a_host_without_heartbeats_or_a_service_is_not_answered(cloud):
    del cloud.source.services_of["a"]
    assert cloud.hosts() == ["b"]
    cloud.world.clock.advance(61)
    for each in "cd":
        cloud.source.beat(each)
    assert cloud.hosts("i2") == ["c"]


def test_a_host_that_is_named_is_verified_too(cloud):
    cloud.force_down("b")
    with pytest.raises(NoValidHost):
        cloud.hosts(requested_destination={"host": "b"})
    assert cloud.world.reserved() == {}


def test_what_was_claimed_on_a_host_that_has_changed_is_taken_back():
    room = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 100}
    placement = PlacementModel(**{f"uuid-{name}": room for name in NAMES})
    cloud = Cloud(placement=PlacementPorts(placement, placement.read_again))
    cloud.force_down("a")
    assert cloud.hosts() == ["b"]
    cloud.world.scheduler.close(SOON_S)
    assert placement.providers() == {"i1": ["uuid-b"]}


def test_requests_that_wait_for_the_same_cell_are_asked_about_together(cloud):
    ask, begun, go_on = cloud.source.services, threading.Event(), threading.Event()
    asked = []

    def hanging(part: str, hosts: Any = None) -> Any:
        asked.append(sorted(hosts))
        begun.set()
        assert go_on.wait(SOON_S)
        return ask(part, hosts)

    cloud.source.services = hanging
    with Threads(4) as threads:
        threads.submit(cloud.hosts, "i1", force_hosts=["a"])
        assert begun.wait(SOON_S)
        for name in "bcd":
            threads.submit(cloud.hosts, f"i-{name}", force_hosts=[name])
        waiting = cloud.world.scheduler._verifying._questions._jobs
        eventually(lambda: len(waiting) == len("bcd"))
        go_on.set()
    assert asked == [["a"], ["b", "c", "d"]]


def test_a_cell_that_cannot_be_read_counts_as_known_and_is_left_alone_for_a_while(cloud):
    cloud.source.down = {CELL}
    assert [cloud.hosts(each) for each in ("i1", "i2")] == [["a"], ["b"]]
    assert cloud.source.calls["services of some"] == 1
    assert cloud.results() == ["unread", "unread"]
    cloud.source.down = set()
    cloud.world.clock.advance(10)
    cloud.force_down(*"abc")
    assert cloud.hosts("i3") == ["d"]
    assert cloud.source.calls["connect"] == 2, "the cell may be elsewhere now"


def test_each_cell_is_asked_about_its_own_hosts(cloud):
    cloud.force_down(*"abcd")
    assert cloud.hosts(alternates=4) == ["e"]
    cloud.source.down = {CELL}
    assert cloud.hosts("i2") == ["e"]
    assert cloud.results() == ["changed", "known", "known"]


def test_hosts_that_report_for_themselves_are_not_asked_about():
    cloud = Cloud()
    report = {"uuid": "uuid-x", "host": "x", "vcpus": 4, "memory_mb": 99999, "local_gb": 100}
    cloud.world.report(report | {"cell_uuid": CELL})
    assert cloud.hosts() == ["x"]
    assert cloud.source.calls == {}


def test_a_change_that_was_stored_meanwhile_is_one_all_the_same(cloud, monkeypatch):
    """As by another request: its own comparison finds the record and the source alike."""
    other = cloud.check_of(cloud.world)

    def store() -> None:
        cloud.force_down("a")
        assert other.verify(CELL, ["uuid-a"])["uuid-a"]["forced_down"]

    before_next(monkeypatch, cloud.source, "services", store)
    assert cloud.hosts() == ["b"]


# A chosen host that changes while hosts are read again for alternates, and is stored as changed


def ask_for_more(cloud: Cloud, change: Callable[[], None], **asked: Any) -> list[str]:
    """The answer to a request that lacks alternates, with what changes before hosts are read."""
    cloud.force_down(*"cde")
    fed = feeder(cloud.world, cloud.source)
    cloud.world.clock.advance(10)
    fed.run_due()
    looks = barrier(cloud.world, fed, look_timeout_s=SOON_S)
    cloud.world.feed(looks, VerifierPorts(cloud.check_of(cloud.world), cloud.trees))
    answer = in_thread(partial(cloud.hosts, alternates=2, **asked))
    eventually(lambda: cloud.world.scheduler.waiting_for_feed == 1)
    change()
    looker = Looker(fed, lambda queries: None, cloud.world.state, cloud.world.clock)
    assert looker.look_if_asked()
    return answer.result(SOON_S)


@pytest.mark.parametrize("facts", [{"disabled": True}, {"forced_down": True}])
def test_a_chosen_host_whose_service_is_read_as_changed_for_alternates_is_not_answered(
    cloud, facts
):
    assert ask_for_more(cloud, lambda: cloud.source.beat("a", **facts)) == ["b"]
    assert cloud.world.reserved() == {"b": ["i1"]}


def test_a_chosen_host_whose_tree_is_stored_as_changed_for_alternates_is_not_answered(cloud):
    forbids = {"flavor": FORBIDS}
    assert ask_for_more(cloud, lambda: cloud.trees.store(), **forbids) == ["b"]


# Placement's trees


def test_requests_that_depend_on_trees_have_them_verified(cloud):
    assert cloud.hosts(flavor=FORBIDS, alternates=1) == ["b", "c"]
    assert cloud.trees.asked == [{"uuid-a", "uuid-b"}, {"uuid-b", "uuid-c"}]
    assert cloud.results() == ["changed", "known"]


@pytest.mark.parametrize(
    ("extra_specs", "traits"),
    [
        ({}, set()),
        ({"trait:A": "required", "trait:B": "forbidden"}, {"A", "B"}),
        ({"resources:VGPU": "1"}, None),
        ({"resources_a:VCPU": "1"}, None),
    ],
)
def test_what_claims_do_not_check_is_asked_about(extra_specs, traits):
    needs = needs_of(request_spec(extra_specs=extra_specs), RequestFilterParameters())
    assert deciding_traits(needs) == traits


def test_a_host_whose_change_cannot_be_stored_is_left_out(cloud):
    """As one whose tree is gone, until its compute node is."""
    cloud.trees.stores = False
    assert cloud.hosts(flavor=FORBIDS, alternates=1) == ["b", "c"]
    assert cloud.results() == ["changed", "changed", "known"]


def test_trees_that_cannot_be_read_count_as_known(cloud):
    cloud.trees.error = PlacementUnavailable("connection refused")
    assert cloud.hosts(flavor=FORBIDS) == ["a"]
    assert cloud.results() == ["unread"]
