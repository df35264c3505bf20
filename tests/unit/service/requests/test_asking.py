"""Requests that Placement is asked about: when, by whom, and what is made of the answer."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from scheduler_worker.errors import NoValidHost, PlacementRefused, PlacementUnavailable, WorkerStops
from scheduler_worker.model.providers import (
    SHARES,
    AllocationRequest,
    CandidatesAnswer,
    Inventory,
    ProviderRoom,
    ProviderSummary,
    SharingProvider,
)
from scheduler_worker.service.requests.allocation_candidates import AskingSettings, CandidatesPorts
from scheduler_worker.service.requests.claims import PlacementPorts
from tests.support.interrupted import raising
from tests.support.patience import SOON_S, eventually
from tests.support.placement_model import PlacementModel
from tests.support.services import World, host, request
from tests.support.threads import Threads, in_thread

ROOM = {"VCPU": 64, "MEMORY_MB": 65536}
FLAVOR = {"vcpus": 1, "memory_mb": 512, "root_gb": 20}


class Pooled(PlacementModel):
    """A model of Placement in which ``pool`` shares disk with hosts; asked for one flavor."""

    def __init__(self, *names: str, disk: int = 100) -> None:
        super().__init__(pool={"DISK_GB": disk}, **{f"uuid-{name}": ROOM for name in names})
        self.queries: list[str] = []
        self.when_asked: Callable[[], None] = lambda: None
        self.pools: Sequence[SharingProvider] | None = None

    def candidates(self, query: str, *, timeout_s: float) -> CandidatesAnswer:
        assert timeout_s > 0
        self.queries.append(query)
        self.when_asked()
        asked = dict(each.split(":") for each in dict(parse_qsl(query))["resources"].split(","))
        amounts = {name: int(amount) for name, amount in asked.items()}
        disk = {"DISK_GB": amounts.pop("DISK_GB")}
        with self.guard:
            left = self.capacities["pool"]["DISK_GB"] - self.used("pool")
            room = ProviderRoom(self.capacities["pool"]["DISK_GB"], self.used("pool"))
        roots = (
            [name for name in self.capacities if name != "pool"] if left >= disk["DISK_GB"] else []
        )
        return CandidatesAnswer(
            tuple(
                AllocationRequest({root: amounts, "pool": disk}, {"": (root, "pool")})
                for root in roots
            ),
            {root: ProviderSummary(root=root, rooms={}) for root in roots}
            | {"pool": ProviderSummary(root="pool", rooms={"DISK_GB": room}, traits=(SHARES,))},
        )

    def used(self, provider: str) -> int:
        held = (each.held.get(provider, {}) for each in self.consumers.values())
        return sum(each.get("DISK_GB", 0) for each in held)

    # The port Sharing

    def known(self) -> Sequence[SharingProvider] | None:
        return self.pools

    def read_sharing(self) -> Sequence[SharingProvider]:
        capacity = self.capacities["pool"]["DISK_GB"]
        self.pools = [
            SharingProvider(
                uuid="pool",
                name="nfs",
                inventories={"DISK_GB": Inventory(total=capacity)},
                usages={"DISK_GB": self.used("pool")},
                aggregates=frozenset({"agg"}),
            )
        ]
        return self.pools


def inventoried(name: str, **facts: Any) -> dict[str, Any]:
    """A host whose compute node has CPUs and memory, and shares a pool of disk with others."""
    root = {
        "uuid": f"uuid-{name}",
        "inventories": {each: {"total": total} for each, total in ROOM.items()},
        "aggregates": ["agg"],
    }
    return host(name, vcpus=64, memory_mb=65536, local_gb=0, resource_providers=[root], **facts)


def scene(*names: str, disk: int = 100, workers: int = 2, **limits: Any) -> tuple[World, Pooled]:
    placement = Pooled(*names, disk=disk)
    sharing: Any = SimpleNamespace(known=placement.known, read=placement.read_sharing)
    world = World(
        placement=PlacementPorts(placement, placement.read_again),
        asking=CandidatesPorts(
            placement, sharing, placement, settings=AskingSettings(workers=workers)
        ),
        **limits,
    )
    world.report(*(inventoried(name, cell_uuid="cell") for name in names))
    return world, placement


def test_what_is_shared_is_asked_for_and_claimed_where_the_answer_says():
    world, placement = scene("a", "b")
    [chosen] = world.place("i1", flavor=FLAVOR)
    assert placement.held()["i1"] == {
        f"uuid-{chosen}": {"VCPU": 1, "MEMORY_MB": 512},
        "pool": {"DISK_GB": 20},
    }
    assert ("asked", "some") in world.observed.events


def test_a_request_that_needs_nothing_shared_is_decided_without_a_question():
    world, placement = scene("a")
    world.place("i1", flavor=FLAVOR | {"root_gb": 0})
    placement.queries.clear()
    world.place("i2", flavor=FLAVOR | {"root_gb": 0})
    assert placement.queries == []


def test_where_nothing_is_shared_no_request_is_asked_about():
    world, placement = scene("a")
    placement.pools = []
    with pytest.raises(NoValidHost):
        world.place("i1", flavor=FLAVOR)
    assert placement.queries == []


def test_a_rebuild_check_is_not_asked_about_and_claims_nothing():
    world, placement = scene("a")
    hints = {"_nova_check_type": ["rebuild"]}
    world.ask("i1", flavor=FLAVOR, scheduler_hints=hints, force_hosts=["a"])
    assert (placement.queries, placement.writes) == ([], [])


def test_a_full_pool_is_the_reason_of_every_host_that_needs_it():
    world, _ = scene("a", "b", disk=30)
    world.place("i1", flavor=FLAVOR)
    with pytest.raises(NoValidHost):
        world.place("i2", flavor=FLAVOR)
    found = world.scheduler.explain(request("i3", flavor=FLAVOR)).clusters["default"]
    reasons = {(each.rejected_by, each.reason) for each in found.verdicts}
    why = "needs 20 DISK_GB; of nfs, which shares with it, 20 are used of 30"
    assert reasons == {("PlacementCandidates", why)}


def test_instances_of_one_request_are_not_promised_the_same():
    world, placement = scene("a", "b", disk=50)
    with pytest.raises(NoValidHost):
        world.place("i1", "i2", "i3", flavor=FLAVOR)
    assert placement.held() == {}
    assert world.reserved() == {}
    world.place("i4", "i5", flavor=FLAVOR)
    assert placement.used("pool") == 40


def stalled_claim(world: World, placement: Pooled) -> tuple[Future[list[str]], threading.Event]:
    """Place i1, whose claim is on its way; its host, and what lets Placement take the claim."""
    begun, goes_on = threading.Event(), threading.Event()

    def stall(consumers: Any) -> None:
        if consumers[0].uuid == "i1":
            begun.set()
            assert goes_on.wait(SOON_S)

    placement.before = stall
    placed = in_thread(world.place, "i1", flavor=FLAVOR)
    assert begun.wait(SOON_S)
    return placed, goes_on


def test_what_another_worker_has_reserved_and_not_claimed_is_not_promised_again():
    world, placement = scene("a", "b", disk=30)
    other = world.beside()
    first, goes_on = stalled_claim(world, placement)
    with pytest.raises(NoValidHost):
        other.place("i2", flavor=FLAVOR)
    assert placement.writes == []  # it was not tried at Placement's expense
    assert len(placement.queries) == 1 + 3  # the other was asked anew while it was in doubt
    goes_on.set()
    assert first.result(SOON_S)
    assert placement.used("pool") == 20


def test_what_is_claimed_after_placement_has_answered_is_not_contained_in_the_answer():
    world, placement = scene("a", "b", disk=30)
    other, candidates = world.beside(), placement.candidates
    first, goes_on = stalled_claim(world, placement)

    def answer_before_the_claim(query: str, *, timeout_s: float) -> CandidatesAnswer:
        answer = candidates(query, timeout_s=timeout_s)
        goes_on.set()
        assert first.result(SOON_S)
        return answer

    vars(placement)["candidates"] = answer_before_the_claim
    with pytest.raises(NoValidHost):
        other.place("i2", flavor=FLAVOR)
    assert placement.writes == [["i1"]]


def test_what_another_worker_has_claimed_counts_once():
    world, placement = scene("a", disk=100)
    other = world.beside()
    for number in range(5):
        [world, other][number % 2].place(f"i{number}", flavor=FLAVOR)
    assert placement.used("pool") == 100


def test_a_refused_claim_leads_to_another_question():
    world, placement = scene("a", "b", disk=30)

    def fill(consumers: Any) -> None:
        placement.capacities["pool"]["DISK_GB"] = 10

    placement.before = fill
    with pytest.raises(NoValidHost):
        world.place("i1", flavor=FLAVOR)
    assert len(placement.queries) == 2
    assert ("asked", "none") in world.observed.events
    assert placement.held() == {}
    assert world.reserved() == {}


def test_while_placement_is_away_requests_wait_as_long_as_their_callers():
    world, placement = scene("a")

    def away() -> None:
        world.clock.advance(1.0)
        raise PlacementUnavailable("it does not answer")

    placement.when_asked = away
    with pytest.raises(PlacementUnavailable, match="does not answer"):
        world.ask("i1", flavor=FLAVOR, remaining_s=3.0)
    assert world.reserved() == {}
    placement.when_asked = raising(PlacementRefused("401"))
    assert "401" in (world.scheduler.explain(request("i1", flavor=FLAVOR)).reason or "")
    placement.when_asked = lambda: None
    assert world.place("i2", flavor=FLAVOR) == ["a"]


def test_a_worker_that_stops_waits_for_placement_no_longer():
    world, placement = scene("a")

    def away() -> None:
        world.scheduler.stop_waiting()
        raise PlacementUnavailable("it does not answer")

    placement.when_asked = away
    with pytest.raises(WorkerStops):
        world.ask("i1", flavor=FLAVOR)


def test_equal_questions_that_wait_together_are_asked_once():
    world, placement = scene("a", workers=1)
    world.place("i0", flavor=FLAVOR | {"root_gb": 1})
    placement.queries.clear()
    begun, goes_on = threading.Event(), threading.Event()

    def stall() -> None:
        begun.set()
        assert goes_on.wait(SOON_S)

    placement.when_asked = stall
    asking = world.scheduler._candidates
    with Threads(5) as threads:
        answers = [threads.submit(world.place, "i1", flavor=FLAVOR)]
        assert begun.wait(SOON_S)
        answers += [threads.submit(world.place, f"i{n}", flavor=FLAVOR) for n in (2, 3, 4)]
        eventually(lambda: len(asking._questions._jobs) == 3)
        goes_on.set()
        assert [each.result(SOON_S) for each in answers] == [["a"]] * 4
    assert len(placement.queries) == 2
