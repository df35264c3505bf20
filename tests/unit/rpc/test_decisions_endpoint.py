"""Decisions over RPC: arguments, and the plain form of records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.observer import Observer
from scheduler_worker.ports import GLOBAL
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.decisions import DecisionsEndpoint
from scheduler_worker.scheduling.options import Options
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from tests.support.services import World, host

SPEC: dict[str, Any] = {
    "availability_zone": "nova",
    "scheduler_hints": {"query": ["x"]},
    "image": {"id": "i", "properties": {"hw_cpu_cores": 2}},
    "instance_group": {"uuid": "g", "policy": "anti-affinity", "_rules": {"a": "1"}},
}


class Decided:
    """A placed request and a refused one."""

    def __init__(self) -> None:
        world = World(options=Options.of(ranked_hosts=5))
        log = MemoryDecisionLog(clock=world.clock)
        recorder = Recorder(
            log,
            world.clock,
            worker="w",
            clusters=world.fleet.names,
            max_waiting=9,
            observer=Observer(),
        )
        world.scheduler._keep = recorder.keep
        world.report(host("a"), host("b"))
        world.ask("i1", project_id="p", vcpus=2, **SPEC)
        with pytest.raises(NoValidHost):
            world.ask("i2", vcpus=99)
        recorder.write()
        self.methods = DecisionsEndpoint(
            KeptDecisions(log, lambda: [GLOBAL, *world.fleet.names()])
        ).endpoint()[2]

    def call(self, method: str, **arguments: Any) -> Any:
        return self.methods[method](Context(), **arguments)


@pytest.fixture
def decided() -> Decided:
    return Decided()


def test_pages_are_plain_and_continue(decided):
    first = decided.call("list_decisions", limit=1)
    [refused] = first["decisions"]
    assert (refused["result"], refused["instances"]) == ("refused", ["i2"])
    second = decided.call("list_decisions", limit=1, marker=first["next"])
    [placed] = second["decisions"]
    assert (placed["result"], placed["hosts"], placed["project_id"]) == ("placed", ["a"], "p")
    assert second["next"] is None
    assert msgspec.json.decode(msgspec.json.encode(first)) == first
    assert "spec" not in placed


def test_one_has_all_that_is_kept(decided):
    [placed] = decided.call("list_decisions", instance="i1")["decisions"]
    found = decided.call("get_decision", id=placed["id"])
    assert found.items() >= placed.items()
    assert [each["host"] for each in found["ranked"]] == ["a", "b"]
    assert set(found["ranked"][0]["shares"]) == {"RAMWeigher", "CPUWeigher"}
    assert found["filters"][0] == {"name": "ComputeFilter", "hosts_in": 2, "hosts_out": 2}
    assert found["selections"] == [[{"host": "a", "nodename": "a"}]]
    assert found["waits"].keys() == {"lock_s", "hold_s", "look_s", "pending_s", "claim_s"}
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_its_request_is_one_that_can_be_sent_again(decided):
    [placed] = decided.call("list_decisions", instance="i1")["decisions"]
    spec = decided.call("get_decision", id=placed["id"])["spec"]
    again = codec.decode_request_spec(spec)
    assert again == codec.decode_request_spec(
        {**SPEC, "flavor": {"vcpus": 2, "memory_mb": 1024}, "project_id": "p"}
    )


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"cluster": 1}, "cluster"),
        ({"host": ""}, "host"),
        ({"result": "lost"}, "result"),
        ({"result": []}, "result"),
        ({"since_s": "yesterday"}, "since_s"),
        ({"until_s": -1}, "until_s"),
        ({"until_s": 1e300}, "until_s"),
        ({"marker": "x"}, "marker"),
        ({"limit": 0}, "limit"),
    ],
)
def test_wrong_arguments_are_named(decided, arguments, field):
    with pytest.raises(RequestError) as raised:
        decided.call("list_decisions", **arguments)
    assert raised.value.field == field


@pytest.mark.parametrize("id", ["x", None, "1-0@nowhere"])
def test_an_unknown_id_is_an_error(decided, id):
    with pytest.raises(RequestError, match=r"^id: "):
        decided.call("get_decision", id=id)


def test_where_none_are_kept_the_option_is_named():
    methods = DecisionsEndpoint(None).endpoint()[2]
    with pytest.raises(RequestError, match=r"^\[decisions\] enabled: "):
        methods["list_decisions"](Context())
