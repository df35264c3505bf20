"""What our server does with messages, on a real RabbitMQ: when it takes them, and what becomes of
them when something breaks."""

import os
import subprocess
import sys

import pytest

from scheduler_worker.errors import CallTimeout, RequestError, StateUnavailable
from scheduler_worker.rpc.amqp import server as amqp_server
from scheduler_worker.rpc.amqp.settings import DeliveryLimits
from tests.support import victim
from tests.support.amqp import content, message
from tests.support.handlers import SOON_S, Witness, echo, eventually, in_thread
from tests.support.proxy import Proxy

pytestmark = pytest.mark.servers

QUORUM = {"rabbit_quorum_queue": True, "rabbit_transient_quorum_queue": True}


@pytest.fixture
def proxy(stage):
    with Proxy(stage.rabbit.port) as proxy:
        yield proxy


@pytest.fixture
def witness():
    return Witness()


# Taking and acknowledging


def test_what_waits_is_in_the_broker_and_any_server_may_take_it(stage, gate):
    stage.serve({"wait": gate}, slots=3)
    client = stage.client()
    for _ in range(10):
        client.cast("wait", {})
    gate.wait_for(3)
    assert stage.operator.depth(stage.topic) == 7
    stage.serve({"wait": gate}, name="two", slots=3)
    gate.wait_for(3)
    assert stage.operator.depth(stage.topic) == 4
    gate.opened.set()
    gate.wait_for(4)


def test_what_a_server_had_in_hand_that_is_cut_off_goes_to_another(stage, gate, proxy):
    stage.serve({"wait": gate}, slots=2, url=stage.through(proxy))
    client = stage.client()
    for _ in range(3):
        client.cast("wait", {})
    gate.wait_for(2)
    stage.serve({"wait": gate}, name="two")
    gate.wait_for(1)
    with proxy.away():
        gate.wait_for(2)


def test_a_message_is_not_acknowledged_before_its_answer_has_left(stage, gate, proxy, witness):
    stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness)
    client = stage.client()
    answer = in_thread(lambda: client.call("wait", {}))
    gate.wait_for(1)
    with proxy.stalled("to_server"):
        gate.opened.set()
        witness.wait_for("served wait")
        stage.serve({"wait": gate}, name="two")
        with proxy.away():
            gate.wait_for(1)
            assert answer.get(timeout=SOON_S) == "passed"


def test_a_message_that_comes_again_to_the_same_server_is_done_once(stage, gate, proxy, witness):
    stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness)
    client = stage.client()
    answer = in_thread(lambda: client.call("wait", {}))
    gate.wait_for(1)
    proxy.cut()
    witness.wait_for("repeated")
    gate.opened.set()
    assert answer.get(timeout=SOON_S) == "passed"
    assert gate.is_untouched


# Dead letters


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "cannot be decoded"),
        (b"\xff\x00", "cannot be decoded"),
        ("[]", "cannot be decoded"),
        ('{"oslo.version": "2.0", "oslo.message": "["}', "cannot be decoded"),
        ('{"oslo.version": "1.0", "oslo.message": "{}"}', "version 1.0"),
        (message("nothing")[0], "NoSuchMethod"),
        (message("echo", args={"wrong": 1})[0], "RequestError"),
        (message("echo", version="2.0")[0], "UnsupportedVersion"),
        (message("echo", args={"value": "x" * 5000})[0], "RequestError"),
        (message("refuse")[0], "RequestError"),
        (message("break")[0], "InternalError"),
    ],
    ids=[
        "half", "binary", "list", "half inside", "envelope", "method", "arguments", "version",
        "oversized", "refused", "defect",
    ],
)  # fmt: skip
def test_what_can_never_be_done_is_kept_for_a_human_and_holds_up_nobody(stage, body, why):
    def refuse(_context):
        raise RequestError("field", "is wrong")

    methods = {"echo": echo, "refuse": refuse, "break": lambda _context: 1 // 0}
    stage.serve(methods, slots=1, limits=DeliveryLimits(max_message_bytes=4096))
    stage.operator.put(stage.topic, body, headers={"told": "by the sender"})
    letter = stage.dead_letter()
    assert why in letter.headers["x-scheduler-worker-reason"]
    assert letter.headers["x-scheduler-worker-queue"] == stage.topic
    assert letter.headers["told"] == "by the sender"
    assert letter.body == body
    assert stage.client().call("echo", {}, value="going on") == "going on"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, QUORUM], ids=["classic", "quorum"])
def test_a_message_that_kills_its_workers_ends_among_the_dead_letters(stage, options):
    command = [sys.executable, "-m", victim.__name__, stage.rabbit.url, stage.topic]
    command += [f"{name}={value}" for name, value in options.items()]
    begun = []
    with_limits = {"limits": DeliveryLimits(max_deliveries=2), **options}
    stage.serve({"echo": echo}, name="declares", **with_limits).stop(SOON_S)
    stage.operator.put(stage.topic, message("die")[0])
    for _ in range(3):
        assert subprocess.run(command, timeout=30, check=False).returncode == victim.STATUS
    stage.serve({"echo": echo, "die": lambda _context: begun.append(os.getpid())}, **with_limits)
    assert "delivered 3 times" in stage.dead_letter().headers["x-scheduler-worker-reason"]
    assert stage.client(options=options).call("echo", {}, value=1) == 1
    assert begun == []


# Failures that pass


def failing(*times):
    """A handler that fails so often for a passing reason, and counts."""
    left = list(times)

    def handler(_context):
        if left:
            left.pop()
            raise StateUnavailable("away for now")

    return handler


def test_a_cast_that_failed_for_a_passing_reason_is_tried_again(stage, witness):
    stage.serve({"do": failing(1)}, observer=witness)
    stage.client().cast("do", {})
    witness.wait_for("served do", 2)
    assert not stage.operator.exists(stage.dead_letters)


def test_casts_that_wait_to_be_tried_again_hold_up_nobody(stage, witness, monkeypatch):
    monkeypatch.setattr(amqp_server, "_AGAIN_S", 60)
    stage.serve({"do": failing(1, 2, 3), "echo": echo}, slots=1, observer=witness)
    client = stage.client(timeout_s=5)
    for _ in range(3):
        client.cast("do", {})
    witness.wait_for("served do", 3)
    assert client.call("echo", {}, value="served") == "served"


def test_a_cast_that_waits_to_be_tried_again_goes_elsewhere_when_its_server_stops(
    stage, witness, monkeypatch
):
    monkeypatch.setattr(amqp_server, "_AGAIN_S", 60)
    stopping = stage.serve({"do": failing(1)}, observer=witness)
    stage.client().cast("do", {})
    witness.wait_for("served do")
    other = Witness()
    stage.serve({"do": failing()}, name="two", observer=other)
    assert stopping.stop(5) is True
    other.wait_for("served do")


# Calls


def test_a_call_that_waited_in_hand_for_too_long_is_not_begun(stage, gate, witness):
    begun = []
    methods = {"wait": gate, "begin": lambda _context: begun.append(1)}
    stage.serve(methods, slots=1, observer=witness)
    stage.client().cast("wait", {})
    gate.wait_for(1)
    with pytest.raises(CallTimeout):
        stage.client(server="one", timeout_s=1.0).call("begin", {})
    gate.opened.set()
    witness.wait_for("expired")
    assert begun == []


def test_a_caller_whose_queue_is_gone_for_a_moment_gets_its_answer(stage):
    stage.serve({"echo": echo}, slots=1)
    body, unique_id = message("echo", args={"value": 7}, reply_queue=f"{stage.topic}-caller")
    stage.operator.put(stage.topic, body)
    # Answered after the other, on the same channel: the other has come back by now.
    assert stage.client().call("echo", {}, value=1) == 1
    stage.operator.declare(f"{stage.topic}-caller", exclusive=True)
    answer = content(stage.operator.take(f"{stage.topic}-caller"))
    assert (answer["_msg_id"], answer["result"], answer["ending"]) == (unique_id, 7, True)


def test_who_monitors_his_call_hears_that_it_is_worked_on(stage, gate):
    stage.serve({"wait": gate})
    caller = f"{stage.topic}-caller"
    stage.operator.declare(caller, exclusive=True)
    stage.operator.put(stage.topic, message("wait", reply_queue=caller, _timeout=0.3)[0])
    heard = (content(each) for each in stage.operator.messages(caller))
    assert [next(heard)["ending"] for _ in range(3)] == [False] * 3
    gate.opened.set()
    last = next(each for each in heard if each["ending"])
    assert (last["result"], last["failure"]) == ("passed", None)


# Waiting without a slot


def test_who_steps_aside_lets_others_be_served_in_its_place(stage, gate):
    def aside(context):
        with context.step_aside():
            return gate(context)

    stage.serve({"aside": aside, "echo": echo, "wait": gate}, slots=1)
    client = stage.client()
    answers = [in_thread(lambda: client.call("aside", {})) for _ in range(3)]
    gate.wait_for(3)
    assert client.call("echo", {}, value="served") == "served"
    gate.opened.set()
    assert [each.get(timeout=SOON_S) for each in answers] == ["passed"] * 3
    gate.opened.clear()
    for _ in range(3):
        client.cast("wait", {})
    gate.wait_for(1)
    assert stage.operator.depth(stage.topic) == 2, "afterwards it takes no more than before"


# Stopping


def test_a_stop_gives_back_what_was_not_begun(stage, gate):
    server = stage.serve({"wait": gate}, slots=1)
    client = stage.client()
    client.cast("wait", {})
    gate.wait_for(1)
    stage.client(server="one").cast("wait", {})
    stopped = in_thread(lambda: server.stop(SOON_S))
    eventually(lambda: stage.operator.depth(f"{stage.topic}.one") == 1)
    gate.opened.set()
    assert stopped.get(timeout=SOON_S) is True
    assert gate.is_untouched
    assert stage.operator.depth(stage.topic) == 0


def test_what_does_not_finish_in_time_is_done_by_another(stage, gate):
    server = stage.serve({"wait": gate})
    client = stage.client()
    answer = in_thread(lambda: client.call("wait", {}))
    gate.wait_for(1)
    stage.serve({"wait": gate}, name="two")
    assert server.stop(0.1) is False
    gate.wait_for(1)
    gate.opened.set()
    assert answer.get(timeout=SOON_S) == "passed"
