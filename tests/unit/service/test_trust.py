"""Trust levels: asked for in the background, believed for a while, read by the filter."""

from __future__ import annotations

import queue
import random

import pytest

from scheduler_worker.errors import BackendError
from scheduler_worker.scheduling.filters.trusted import TrustedFilter
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.trust import Trust
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.services import World, host

TRUSTED = request_spec(extra_specs={"trust:trusted_host": "trusted"})


class Service:
    """Says what it is told to say, and tells when it was asked."""

    def __init__(self) -> None:
        self.says: dict[str, str] | BackendError = {"a": "trusted", "b": "untrusted"}
        self.asked: queue.Queue[list[str]] = queue.Queue()

    def levels(self, nodenames):
        self.asked.put(list(nodenames))
        if isinstance(self.says, BackendError):
            raise self.says
        return dict(self.says)


class Stage:
    def __init__(self, lasts_s: float = 60) -> None:
        self.world, self.service, self.told = World(), Service(), []
        self.trust = Trust(
            self.service, self.world.fleet, self.world.clock, lasts_s=lasts_s,
            report=self.told.append,
        )  # fmt: skip
        self.unit = self.trust.filter()()
        self.hosts = host_table([host_record(host=name) for name in ("a", "b", "c")])

    def passing(self) -> str:
        mask = self.unit.passes(self.hosts, TRUSTED).tolist()
        rows = list(self.hosts.states())
        assert mask == [self.unit.host_passes(each, TRUSTED) for each in rows]
        return "".join(each.host for each, passes in zip(rows, mask, strict=True) if passes)


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.world.report(host("a"), host("b", cluster="two"))
    return found


def test_only_hosts_of_exactly_the_level_pass(stage):
    assert stage.passing() == "", "nobody was asked yet"
    stage.trust.poll()
    assert stage.passing() == "a"
    reasons = [stage.unit.reason(each, TRUSTED) for each in stage.hosts.states()]
    assert reasons[1:] == [
        "its trust level is untrusted, not trusted",
        "its trust level is unknown, not trusted",
    ]


def test_all_nodes_of_all_clusters_are_asked_about(stage):
    stage.trust.poll()
    assert stage.service.asked.get_nowait() == ["a", "b"]


def test_without_hosts_nobody_is_asked():
    stage = Stage()
    stage.trust.poll()
    assert stage.service.asked.empty()


def test_a_changed_level_counts_for_a_request_that_was_decided_before(stage):
    pipeline = Pipeline([stage.unit], [], Options())

    def chosen(uuid: str) -> str:
        request = Request(spec=TRUSTED, instance_uuids=(uuid,))
        [[selection]] = pipeline.decide(stage.hosts, request, random.Random()).selections
        return selection.service_host

    stage.trust.poll()
    assert [chosen("i1"), chosen("i2")] == ["a", "a"]
    stage.service.says = {"b": "trusted"}
    stage.trust.poll()
    assert chosen("i3") == "b"


def test_when_the_service_is_silent_levels_are_believed_until_they_are_too_old(stage):
    stage.trust.poll()
    stage.service.says = BackendError("The attestation service is away.")
    stage.world.clock.advance(59)
    stage.trust.poll()
    assert stage.told == ["The attestation service is away."]
    assert stage.passing() == "a"
    stage.world.clock.advance(1)
    assert stage.passing() == ""


def test_it_goes_on_asking_until_it_is_stopped():
    stage = Stage(lasts_s=0.02)
    stage.world.report(host("a"))
    stage.trust.start()
    for _ in range(3):
        assert stage.service.asked.get(timeout=30) == ["a"]
    stage.trust.stop()
    stage.trust._thread.join(timeout=30)
    assert not stage.trust._thread.is_alive()


def test_a_request_that_asks_for_no_trust_goes_anywhere(stage):
    assert not stage.unit.applies(request_spec())
    assert stage.unit.passes(stage.hosts, request_spec()).all()


def test_without_a_service_no_host_is_trusted(stage):
    assert not TrustedFilter().passes(stage.hosts, TRUSTED).any()
