"""Rehearsals over REST, each in a real process, of an API with a worker inside."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from scheduler_worker.compose import rehearsal
from scheduler_worker.compose.api import ApiProcess, build_embedded
from scheduler_worker.compose.rehearsals import Rehearsals
from scheduler_worker.errors import Conflict, NoValidHost, RequestError
from scheduler_worker.model.policies import ClusterPolicy, FilterUse
from scheduler_worker.model.rehearsals import RehearsalQuery, RehearsalRecord
from tests.support.consoles import configured, fill
from tests.support.patience import eventually
from tests.support.services import request

STRICT = ClusterPolicy(
    id="p1",
    name="strict",
    version=1,
    filters=(FilterUse(unit="CoreFilter"), FilterUse(unit="NumInstancesFilter")),
    parameters={"max_instances_per_host": "1"},
)


@pytest.fixture
def api(tmp_path) -> Iterator[ApiProcess]:
    """Three instances on the hosts of a cluster, a fourth was refused."""
    with build_embedded(configured(tmp_path)).running() as found:
        fill(found.services.inventory)
        scheduler = found.services.scheduler
        for name in ("one", "two", "three"):
            asked = request(name, vcpus=1, requested_destination={"host": "a1"})
            scheduler.answered(scheduler.select(asked))
        with pytest.raises(NoValidHost):
            scheduler.select(request("huge", vcpus=99))
        assert found.worker is not None
        assert found.worker.parts.recorder is not None
        found.worker.parts.recorder.write()
        yield found


@pytest.fixture
def rehearsals(api) -> Rehearsals:
    return api._rehearsals


@pytest.fixture
def begin(rehearsals) -> Callable[..., RehearsalRecord]:
    def begun(policy: ClusterPolicy | None = None, **asked: Any) -> RehearsalRecord:
        until_s = datetime.now(UTC).timestamp() + 60
        return rehearsals.begin(
            RehearsalQuery(since_s=0.0, until_s=until_s, **asked), policy, (), "anna"
        )

    return begun


def wait_to_be_killed(*_: object) -> None:
    signal.pause()


@pytest.fixture
def endless(monkeypatch) -> None:
    """The process of a rehearsal does not end by itself."""
    monkeypatch.setattr(rehearsal, "serve", wait_to_be_killed)


def ended(rehearsals: Rehearsals, record: RehearsalRecord) -> Any:
    """The record and the summary once there is nothing more to come."""

    def has_ended() -> bool:
        found = rehearsals.records.find(record.id)
        return found is not None and not found[0].is_running

    eventually(has_ended)
    return rehearsals.records.find(record.id)


def state_of(api: ApiProcess) -> Any:
    worker = api.worker
    assert worker is not None
    return {each.scope: each.seen.version for each in worker.fleet.clusters()}


def test_a_stricter_policy_refuses_what_was_placed_and_nothing_in_force_is_touched(
    api, rehearsals, begin
):
    before = state_of(api)
    record, summary = ended(rehearsals, begin(STRICT, cluster="east"))
    assert (record.state, record.problem, record.read, record.done) == ("done", None, 4, 4)
    assert summary.counts == {"same": 2, "moved": 0, "refused": 2, "placed": 0}
    assert {each.instances[0] for each in summary.changes} == {"two", "three"}
    why = " in 3 clusters; nearest is cluster east: "
    assert all(why in each.reason for each in summary.changes)
    assert (summary.placed.before, summary.placed.after) == (3, 1)
    assert [each.cluster for each in summary.packing.before] == ["east", "harbour", "west"]
    assert state_of(api) == before


def test_an_unknown_cluster_is_refused_at_once(rehearsals, begin):
    with pytest.raises(RequestError, match="there is no cluster 'nowhere'; known are east"):
        begin(cluster="nowhere")
    assert rehearsals.records.all() == []


def test_one_runs_at_a_time_and_ends_when_it_is_cancelled(rehearsals, endless, begin):
    first = begin()
    with pytest.raises(Conflict, match=first.id):
        begin()
    rehearsals.end(first.id, "bert")
    eventually(lambda: not multiprocessing.active_children())
    record, _ = rehearsals.records.find(first.id)
    assert (record.state, record.problem) == ("cancelled", "cancelled by bert")

    def is_free() -> bool:
        try:
            begin()
        except Conflict:
            return False
        return True

    eventually(is_free)


def test_a_process_that_is_killed_is_a_failure_that_says_so(rehearsals, endless, begin):
    record = begin()
    eventually(lambda: bool(multiprocessing.active_children()))
    [process] = multiprocessing.active_children()
    process.kill()
    record, summary = ended(rehearsals, record)
    assert (record.state, summary) == ("failed", None)
    assert record.problem == "its process ended with status -9"


def test_the_end_of_the_api_ends_its_process(api, rehearsals, endless, begin):
    begin()
    eventually(lambda: bool(multiprocessing.active_children()))
    api.stop()
    eventually(lambda: not multiprocessing.active_children())
    eventually(lambda: not rehearsals._run.is_alive())  # which says so after its process is gone
    record = rehearsals._run.record
    assert (record.state, record.problem) == ("failed", "its API process was stopped")
