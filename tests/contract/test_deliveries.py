"""Deliveries of a bus: slots, late acknowledgement, retries, dead letters; of both buses."""

from typing import Any

import pytest

from scheduler_worker.errors import BusUnavailable
from scheduler_worker.rpc.dispatcher import Context
from scheduler_worker.rpc.serving import handling
from scheduler_worker.rpc.serving.settings import DeliveryLimits
from scheduler_worker.waiters import Waiter
from tests.support.clock import ManualLoop
from tests.support.handlers import Witness, echo, failing
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.threads import in_thread


def test_messages_without_a_free_slot_wait_for_any_server(serve, client, gate):
    serve({"wait": gate}, slots=3)
    for _ in range(10):
        client.cast("wait", {})
    gate.wait_for(3)
    assert not gate.entered.acquire(timeout=0.2)
    serve({"wait": gate}, name="two", slots=3)
    gate.wait_for(3)
    assert not gate.entered.acquire(timeout=0.2)
    gate.opened.set()
    gate.wait_for(4)


def test_a_yielded_slot_serves_other_messages(serve, client, gate):
    async def yielding(context: Context) -> str:
        passed = Waiter()
        with context.yield_slot():
            in_thread(lambda: (gate(context), passed.end()))
            await passed
        return "passed"

    serve({"yield": yielding, "echo": echo, "wait": gate}, slots=1)
    answers = [in_thread(lambda: client.call("yield", {})) for _ in range(3)]
    gate.wait_for(3)
    assert client.call("echo", {}, value="served") == "served"
    gate.opened.set()
    assert [each.result(SOON_S) for each in answers] == ["passed"] * 3
    gate.opened.clear()
    for _ in range(3):
        client.cast("wait", {})
    gate.wait_for(1)
    serve({"wait": gate}, name="two", slots=2)
    gate.wait_for(2)  # afterwards the first consumes no more than before


def test_what_is_not_finished_when_the_stop_times_out_goes_to_another_server(serve, client, gate):
    begun: list[str] = []
    methods = {"wait": gate, "begin": lambda context: begun.append(context.message_id)}
    server = serve(methods, slots=1)
    answer = in_thread(client.call, "wait", {})
    gate.wait_for(1)
    client.cast("begin", {})
    assert server.stop(0.3) is False
    assert begun == []
    serve(methods, name="two")
    gate.wait_for(1)
    eventually(lambda: len(begun) == 1)
    gate.opened.set()
    assert answer.result(SOON_S) == "passed"
    assert server.stop(SOON_S) is True


def break_down(server: Any) -> None:
    server._loop.call_soon(lambda: 1 // 0)
    eventually(lambda: server.failure() is not None)


def test_what_a_server_had_that_broke_down_goes_to_another(serve, client, gate):
    first = serve({"wait": gate}, slots=2)
    answers = [in_thread(lambda: client.call("wait", {})) for _ in range(3)]
    gate.wait_for(2)
    break_down(first)
    serve({"wait": gate}, name="two")
    gate.wait_for(3)
    gate.opened.set()
    assert [each.result(SOON_S) for each in answers] == ["passed"] * 3


def test_a_message_that_breaks_its_servers_is_delivered_a_bounded_number_of_times(
    serve, client, gate, witness
):
    limits = DeliveryLimits(max_deliveries=2)
    serve({}, name="declares").stop(SOON_S)
    client.cast("wait", {})
    for number in range(3):
        server = serve({"wait": gate}, name=f"{number}", limits=limits, observer=witness)
        gate.wait_for(1)
        break_down(server)
    serve({"wait": gate, "echo": echo}, name="last", limits=limits, observer=witness)
    witness.wait_for("dead-lettered")
    assert client.call("echo", {}, value="going on") == "going on"
    assert gate.is_untouched


def test_a_cast_that_failed_for_a_passing_reason_is_retried(serve, client, witness):
    serve({"do": failing(1)}, observer=witness)
    client.cast("do", {})
    witness.wait_for("served do", 2)
    assert witness.seen("dead-lettered") == 0


def test_a_cast_that_keeps_finding_the_bus_away_is_given_up(serve, client, witness, monkeypatch):
    clock = ManualLoop()
    monkeypatch.setattr(handling, "_RETRY_S", 0)
    monkeypatch.setattr(handling, "time", clock)

    def away(_context: Context) -> None:
        clock.now_s += 10.0
        raise BusUnavailable("away")

    server = serve({"do": away}, observer=witness)
    server._messages._find_caller_s = 15.0  # since the first failure
    client.cast("do", {})
    witness.wait_for("dead-lettered")
    assert witness.seen("served do") == 4


def test_casts_that_wait_for_a_retry_block_nothing(serve, client, witness, monkeypatch):
    monkeypatch.setattr(handling, "_RETRY_S", NEVER_S)
    serve({"do": failing(3), "echo": echo}, slots=1, observer=witness)
    for _ in range(3):
        client.cast("do", {})
    witness.wait_for("served do", 3)
    assert client.call("echo", {}, value="served") == "served"


def test_a_cast_that_waits_for_a_retry_goes_to_another_server_on_stop(
    serve, client, witness, monkeypatch
):
    monkeypatch.setattr(handling, "_RETRY_S", NEVER_S)
    stopping = serve({"do": failing(1)}, observer=witness)
    client.cast("do", {})
    witness.wait_for("served do")
    other = Witness()
    serve({"do": failing(0)}, name="two", observer=other)
    assert stopping.stop(SOON_S) is True
    other.wait_for("served do")


def test_a_server_takes_no_requests_while_it_is_not_to(serve, bus, client, topic):
    server = serve({"name": lambda _context: "one"}, name="one")
    server.take_requests(False)
    assert bus.client(topic, server="one", timeout_s=SOON_S).call("name", {}) == "one"
    answer = in_thread(client.call, "name", {})
    with pytest.raises(TimeoutError):
        answer.result(0.2)
    server.take_requests(True)
    assert answer.result(SOON_S) == "one"
