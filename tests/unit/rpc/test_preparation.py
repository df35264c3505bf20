"""Every RPC method prepares a request alike."""

import json
from typing import Any

import pytest

from scheduler_worker.errors import RequestError
from scheduler_worker.operations.requests import explain
from scheduler_worker.ports import Publisher
from scheduler_worker.rpc.dispatcher import Context
from scheduler_worker.rpc.nova import NovaEndpoint
from scheduler_worker.rpc.worker import WorkerEndpoint
from scheduler_worker.waiters import complete
from tests.support.samples import SAMPLES, nova_cases
from tests.support.services import World

CONTEXT = Context(request_id="req-1")
NOBODY: Any = None
"""Nothing is balanced here."""


def recorded_requests() -> list:
    """Every recorded request: as messages, and in cases of filters, weighers and schedules."""
    found = [
        pytest.param(json.loads(path.read_text()), id=path.stem)
        for path in sorted(SAMPLES.glob("request_spec*.json"))
    ]
    cases = [each for each in nova_cases() if isinstance(each.value.get("request_spec"), dict)]
    assert len(cases) > 300
    return found + [
        pytest.param(each.value["request_spec"], id=str(at)) for at, each in enumerate(cases)
    ]


class RecordingPublisher(Publisher):
    def cast(self, **sent) -> None:
        self.sent = sent


class Methods:
    """The RPC methods that take a request for hosts."""

    def __init__(self, world: World) -> None:
        self.publisher = RecordingPublisher()
        self.nova = NovaEndpoint(world.scheduler, world.inventory)
        self.ours = WorkerEndpoint(world.scheduler, world.inventory, NOBODY, self.publisher)
        self.world = world

    def select(self, spec):
        return complete(self.nova.select_destinations(CONTEXT, spec_obj=spec))

    def cast(self, spec):
        target = {"topic": "conductor"}
        complete(self.ours.request_destinations(CONTEXT, spec_obj=spec, reply_to=target))
        return self.publisher.sent["arguments"]

    def explain(self, spec):
        return self.world.call(explain, spec_obj=spec)


class Reached(Exception):
    """Carries the request that reached the scheduler."""


@pytest.fixture
def reached_by(monkeypatch):
    """What each method makes of a message: the scheduler's request, or the reason of a refusal."""
    world = World()

    def refuse(request, **_):
        raise Reached(request)

    monkeypatch.setattr(world.scheduler, "selecting", refuse)
    monkeypatch.setattr(world.scheduler, "explain", refuse)
    methods = Methods(world)
    monkeypatch.setattr(
        "scheduler_worker.rpc.worker._encode_error", lambda error, _: {"error": error}
    )

    def of(method, spec):
        try:
            answer = getattr(methods, method)(spec)
        except Reached as found:
            return found.args[0]
        except RequestError as error:
            return str(error)
        error = answer["error"]["error"]
        return error.args[0] if isinstance(error, Reached) else str(error)

    return of


@pytest.mark.parametrize("spec", recorded_requests())
def test_every_recorded_request_is_prepared_alike_by_every_method(reached_by, spec):
    selected = reached_by("select", spec)
    assert reached_by("cast", spec) == selected
    explained = reached_by("explain", spec)
    assert explained == selected or explained.spec == selected.spec
