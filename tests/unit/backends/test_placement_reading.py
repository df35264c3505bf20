"""Forms of Placement's answers, and what cannot be read of them."""

import threading
from typing import Any

import pytest

from scheduler_worker.backends.placement.reading import PlacementReader
from scheduler_worker.backends.placement.session import PlacementAnswer, PlacementSession
from scheduler_worker.errors import PlacementRefused, PlacementUnavailable
from scheduler_worker.model.providers import ProviderFacts
from scheduler_worker.model.sizes import MAX_SIZE
from tests.support.patience import SOON_S
from tests.support.threads import in_thread

PATH = "/resource_providers/p"


class FakeSession(PlacementSession):
    """Answers by path; 404 where it has none."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked_for: list[str] = []
        """Paths, the first one first."""

    def close(self) -> None:
        """There is nothing to close."""

    def request(self, method, path, body=None, **options):
        assert method == "GET"
        self.asked_for.append(path)
        if path not in self.answers:
            return PlacementAnswer(404, None)
        found = self.answers[path]
        return found if isinstance(found, PlacementAnswer) else PlacementAnswer(200, found)


class HangingSession(FakeSession):
    """Never answers until the test lets it."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked = threading.Semaphore(0)
        self.goes_on = threading.Event()

    def request(self, method, path, body=None, **options):
        self.asked.release()
        self.goes_on.wait(SOON_S)
        return super().request(method, path)


def reader_of(answers: dict[str, Any]) -> PlacementReader:
    return PlacementReader(FakeSession(answers))


def provider(**inventory: Any) -> dict[str, Any]:
    inventories = {"VCPU": {"total": 4} | inventory}
    return {
        f"{PATH}/inventories": {"resource_provider_generation": 3, "inventories": inventories},
        f"{PATH}/traits": {"resource_provider_generation": 3, "traits": ["B", "A"]},
        f"{PATH}/aggregates": {"resource_provider_generation": 3, "aggregates": []},
    }


def test_figures_beyond_our_bounds_are_bounded():
    answers = provider(max_unit=2**63, allocation_ratio=1e30)
    facts = reader_of(answers).facts(["p", "gone"])["p"]
    assert facts.inventories["VCPU"].max_unit == MAX_SIZE
    assert facts.inventories["VCPU"].allocation_ratio == 100_000.0
    assert (facts.generation, facts.traits) == (3, ("A", "B"))


def test_traits_and_aggregates_are_read_after_the_generation_that_they_are_stored_with():
    """One that changes in between would count as known up to the new generation for good."""
    session = FakeSession(provider())
    PlacementReader(session).facts(["p"])
    assert session.asked_for[0] == f"{PATH}/inventories"


def test_a_provider_that_goes_while_it_is_read_is_gone():
    answers = provider()
    del answers[f"{PATH}/aggregates"]
    assert reader_of(answers).facts(["p"]) == {}


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (provider(total=-1), "its inventory {'total': -1} is no such"),
        (provider() | {f"{PATH}/traits": {"traits": 7}}, f"GET {PATH}/traits is no such"),
    ],
)
def test_of_a_provider_that_cannot_be_read_nothing_is_taken_until_it_can(answers, problem, caplog):
    session = FakeSession(answers)
    reader = PlacementReader(session)
    for _ in range(2):
        assert reader.facts(["p"]) == {"p": ProviderFacts(generation=None, inventories={})}
    [logged] = caplog.records
    assert problem in logged.message
    session.answers = provider()
    assert reader.facts(["p"])["p"].inventories["VCPU"].total == 4


def test_a_provider_that_placement_does_not_give_is_an_error():
    answers = {f"{PATH}/inventories": PlacementAnswer(400, {"errors": [{"detail": "bad"}]})}
    with pytest.raises(PlacementRefused, match=f"GET {PATH}/inventories: 400 bad"):
        reader_of(answers).facts(["p"])


def test_a_list_that_is_not_there_is_an_error():
    with pytest.raises(PlacementRefused, match="does not know"):
        reader_of({}).listed()


def test_a_reading_ends_clearly_when_the_worker_stops():
    session = HangingSession()
    reader = PlacementReader(session, concurrency=1)
    reading = in_thread(reader.uses, ["p", "q", "r"])
    assert session.asked.acquire(timeout=SOON_S)
    reader.close()
    session.goes_on.set()
    with pytest.raises(PlacementUnavailable, match="the worker stops"):
        reading.result(SOON_S)
    with pytest.raises(PlacementUnavailable, match="the worker stops"):
        reader.uses(["p"])


def test_providers_are_read_as_many_at_a_time_as_there_are_connections():
    session = HangingSession()
    reader = PlacementReader(session, concurrency=3)
    reading = in_thread(reader.facts, [str(number) for number in range(9)])
    for _ in range(3):
        assert session.asked.acquire(timeout=SOON_S)
    assert not session.asked.acquire(blocking=False)
    session.goes_on.set()
    assert reading.result(SOON_S) == {}
    reader.close()
