"""Trust levels: polled in the background, valid for a while, read by the filter."""

import queue
import random

import pytest

from scheduler_worker.errors import BackendError, StateUnavailable
from scheduler_worker.scheduling.filters.compute import TrustedFilter, TrustSource
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.plugin import NoParameters, UnitContext
from scheduler_worker.service.policies.trust import Trust
from tests.support.hosts import host_record, host_table, request_spec
from tests.support.interrupted import raising
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.units import pipeline_of

TRUSTED = request_spec(extra_specs={"trust:trusted_host": "trusted"})


class Service:
    """Answers with the given levels, and signals each poll."""

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
        self.world, self.service = World(), Service()
        self.trust = Trust(self.service, self.world.fleet, self.world.clock, lasts_s=lasts_s)
        self.unit = TrustedFilter(
            UnitContext(
                name="TrustedFilter",
                parameters=NoParameters(),
                collaborators={TrustSource: self.trust},
            )
        )
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
    assert stage.passing() == "", "the service was not polled yet"
    stage.trust.poll()
    assert stage.passing() == "a"
    reasons = [stage.unit.reason(each, TRUSTED) for each in stage.hosts.states()]
    assert reasons[1:] == [
        "its trust level is untrusted, not trusted",
        "its trust level is unknown, not trusted",
    ]


def test_the_nodes_of_all_clusters_are_polled(stage):
    stage.trust.poll()
    assert stage.service.asked.get_nowait() == ["a", "b"]


def test_without_hosts_the_service_is_not_polled():
    stage = Stage()
    stage.trust.poll()
    assert stage.service.asked.empty()


def test_a_changed_level_applies_to_a_class_of_requests_decided_before(stage):
    pipeline = pipeline_of([stage.unit])

    def chosen(uuid: str) -> str:
        request = Request(spec=TRUSTED, instance_uuids=(uuid,))
        [[selection]] = pipeline.decide(stage.hosts, request, random.Random()).selections
        return selection.service_host

    stage.trust.poll()
    assert [chosen("i1"), chosen("i2")] == ["a", "a"]
    stage.service.says = {"b": "trusted"}
    stage.trust.poll()
    assert chosen("i3") == "b"


def test_without_an_answer_levels_are_valid_until_they_are_too_old(stage, caplog):
    stage.trust.poll()
    stage.service.says = BackendError("The attestation service is away.")
    stage.world.clock.advance(59)
    stage.trust.poll()
    assert caplog.messages == ["The attestation service is away."]
    assert stage.passing() == "a"
    stage.world.clock.advance(1)
    assert stage.passing() == ""


def test_it_keeps_polling_until_it_is_stopped():
    stage = Stage(lasts_s=0.02)
    stage.world.report(host("a"))
    stage.trust.start()
    for _ in range(3):
        assert stage.service.asked.get(timeout=SOON_S) == ["a"]
    stage.trust.stop()
    stage.trust._thread.join(SOON_S)
    assert not stage.trust._thread.is_alive()


def test_a_request_without_a_trust_level_goes_to_any_host(stage):
    assert not stage.unit.applies(request_spec())
    assert stage.unit.passes(stage.hosts, request_spec()).all()


def test_without_a_service_no_host_is_trusted(stage):
    assert not TrustedFilter().passes(stage.hosts, TRUSTED).any()


def test_an_outage_of_the_state_is_not_reported_here(stage, monkeypatch, caplog):
    monkeypatch.setattr(stage.world.state, "changes", raising(StateUnavailable("away")))
    stage.trust.poll()
    assert caplog.messages == []
