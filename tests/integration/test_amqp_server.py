"""Deliveries, retries and failures of our server on a real RabbitMQ."""

import time
from types import SimpleNamespace

import pytest

from scheduler_worker.errors import RemoteFailure
from scheduler_worker.rpc.serving import handling
from scheduler_worker.rpc.serving.settings import DeliveryLimits
from tests.support.amqp import content, message
from tests.support.handlers import echo, failing
from tests.support.patience import SOON_S, eventually
from tests.support.threads import in_thread

QUORUM = {"rabbit_quorum_queue": True, "rabbit_transient_quorum_queue": True}


# Delivery and acknowledgement


@pytest.mark.parametrize("options", [{}, QUORUM], ids=["classic", "quorum"])
def test_another_consumer_of_the_topic_gets_nothing_while_a_slot_is_free(stage, options):
    """As a nova-scheduler whose place is taken, and which loses requests while it stops."""
    stage.serve({"echo": echo}, slots=2, **options)
    stage.operator.consume_in_vain(stage.topic)
    client = stage.client(options=options)
    assert [client.call("echo", {}, value=each) for each in range(20)] == list(range(20))


def test_a_server_that_comes_last_gets_nothing_until_it_comes_first(stage):
    """As a worker beside a nova-scheduler, before it knows all hosts."""
    got = []
    server = stage.serve({"note": lambda _context, value: got.append(value)}, comes_first=False)
    stage.operator.consume_in_vain(stage.topic)
    client = stage.client()
    for each in range(5):
        client.cast("note", {}, value=each)
    eventually(lambda: stage.operator.taken == 5)
    assert got == []
    server.come_first()

    def is_first() -> bool:  # it takes effect a moment later
        cast(-1)
        return bool(got)

    def cast(value: int) -> None:  # what a server has no slot for goes to others, so one by one
        done = len(got) + stage.operator.taken
        client.cast("note", {}, value=value)
        eventually(lambda: len(got) + stage.operator.taken > done)
        eventually(lambda: server.describe()["in_hand"] == 0)

    eventually(is_first)
    taken = stage.operator.taken
    for each in range(5):
        cast(each)
        assert (got[-1], stage.operator.taken) == (each, taken)


def test_a_server_that_comes_last_and_is_alone_gets_all(stage):
    stage.serve({"echo": echo}, comes_first=False)
    assert stage.client().call("echo", {}, value=1) == 1


def test_a_message_is_not_acknowledged_before_its_answer_is_sent(stage, gate, proxy, witness):
    stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness)
    client = stage.client()
    answer = in_thread(client.call, "wait", {})
    gate.wait_for(1)
    with proxy.stalled("to_server"):
        gate.opened.set()
        witness.wait_for("served wait")
        stage.serve({"wait": gate}, name="two")
        with proxy.away():
            gate.wait_for(1)
            assert answer.result(SOON_S) == "passed"


def test_a_message_redelivered_to_the_same_server_is_handled_once(stage, gate, proxy, witness):
    stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness)
    client = stage.client()
    answer = in_thread(client.call, "wait", {})
    gate.wait_for(1)
    proxy.cut()
    witness.wait_for("repeated")
    gate.opened.set()
    assert answer.result(SOON_S) == "passed"
    assert gate.is_untouched


# Dead letters


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\x00", "cannot be decoded"),
        (message("echo", args={"value": "x" * 5000})[0], "allows 4096"),
        (message("break")[0], "ZeroDivisionError: "),
    ],
    ids=["binary", "oversized", "defect"],
)
def test_a_message_that_can_never_be_handled_is_dead_lettered_and_blocks_nothing(stage, body, why):
    methods = {"echo": echo, "break": lambda _context: 1 // 0}
    stage.serve(methods, slots=1, limits=DeliveryLimits(max_message_bytes=4096))
    stage.operator.put(stage.topic, body, headers={"custom": "of the sender"})
    letter = stage.dead_letter()
    assert why in letter.headers["x-scheduler-worker-reason"]
    assert letter.headers["x-scheduler-worker-queue"] == stage.topic
    assert letter.headers["custom"] == "of the sender"
    assert letter.body == body
    assert stage.client().call("echo", {}, value="going on") == "going on"


def test_a_message_that_breaks_its_servers_is_dead_lettered_by_the_count_of_a_quorum_queue(
    stage, gate
):
    with_limits = {"limits": DeliveryLimits(max_deliveries=2), **QUORUM}
    stage.serve({"echo": echo}, name="declares", **with_limits).stop(SOON_S)
    stage.operator.put(stage.topic, message("wait")[0])
    for number in range(3):
        server = stage.serve({"wait": gate}, name=f"{number}", **with_limits)
        gate.wait_for(1)
        server._loop.call_soon(lambda: 1 // 0)
        eventually(lambda server=server: server.failure() is not None)
    stage.serve({"echo": echo, "wait": gate}, **with_limits)
    assert "delivered 3 times" in stage.dead_letter().headers["x-scheduler-worker-reason"]
    assert stage.client(options=QUORUM).call("echo", {}, value=1) == 1
    assert gate.is_untouched


def test_a_redelivery_from_another_user_is_counted_and_handled(stage, gate, proxy, witness):
    """RabbitMQ accepts ``user_id`` from that user alone, so a copy must leave it out."""
    with stage.account() as account:
        cut_off, url = (
            each.replace("guest:guest", f"{account.name}:secret")
            for each in (stage.through(proxy), stage.rabbit.url)
        )
        stage.serve({"wait": gate}, slots=1, url=cut_off)
        stage.operator.put(stage.topic, message("wait")[0], user_id="guest")
        gate.wait_for(1)
        stage.serve({"wait": gate}, name="two", slots=1, url=url, observer=witness)
        with proxy.away():
            gate.wait_for(1)
        assert witness.seen("lost") == 0


def test_a_message_that_cannot_be_dead_lettered_is_dropped_and_logged(stage, witness, caplog):
    with stage.account() as account:
        account.permit(without_dead_letters=True)
        stage.serve({"echo": echo}, url=account.url, observer=witness)
        assert f"{stage.dead_letters} cannot be declared" in caplog.text
        assert "needs the configure permission" in caplog.text
        stage.operator.put(stage.topic, b"{")
        witness.wait_for("discarded")
        eventually(lambda: "A message is dropped" in caplog.text)  # logged after it was counted
        assert stage.client().call("echo", {}, value="going on") == "going on"


def test_a_dead_letter_queue_of_another_kind_will_do(stage):
    stage.operator.declare(stage.dead_letters, durable=True)
    stage.serve({"echo": echo}, **QUORUM)
    stage.operator.put(stage.topic, b"{", user_id="guest")
    assert stage.dead_letter().headers["x-scheduler-worker-user-id"] == "guest"


# Calls


def test_a_call_that_expires_while_it_waits_for_a_slot_is_not_begun(
    stage, gate, witness, monkeypatch
):
    begun = []
    methods = {"wait": gate, "begin": lambda _context: begun.append(1)}
    server = stage.serve(methods, slots=1, observer=witness)
    stage.client().cast("wait", {})
    gate.wait_for(1)
    call, _ = message("begin", reply_queue=f"{stage.topic}-caller")
    stage.operator.put(f"{stage.topic}.one", call, expiration="60000")
    eventually(lambda: server.describe()["in_hand"] == 2)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 61)
    monkeypatch.setattr(handling, "time", later)
    gate.opened.set()
    witness.wait_for("expired")
    assert begun == []


def test_a_caller_whose_reply_queue_is_missing_for_a_moment_gets_its_answer(stage):
    stage.serve({"echo": echo}, slots=1)
    body, unique_id = message("echo", args={"value": 7}, reply_queue=f"{stage.topic}-caller")
    stage.operator.put(stage.topic, body)
    # Answered after the other on the same channel: the other has been returned by now.
    assert stage.client().call("echo", {}, value=1) == 1
    stage.operator.declare(f"{stage.topic}-caller", exclusive=True)
    answer = content(stage.operator.take(f"{stage.topic}-caller"))
    assert (answer["_msg_id"], answer["result"], answer["ending"]) == (unique_id, 7, True)


FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
"""The broker nacks what a queue that is full would get, as a node does that is away."""


def test_an_answer_that_the_broker_nacks_is_sent_again(stage):
    caller = f"{stage.topic}-caller"
    stage.operator.declare(caller, arguments=FULL)
    stage.operator.put(caller, "first")
    server = stage.serve({"echo": echo}, slots=1)
    body, _ = message("echo", args={"value": 7}, reply_queue=caller)
    stage.operator.put(stage.topic, body)
    eventually(lambda: server.describe()["unanswered_bytes"])
    assert stage.operator.take(caller).body == "first"
    assert content(stage.operator.take(caller))["result"] == 7


def test_a_dead_letter_that_the_broker_nacks_is_sent_again_and_blocks_nothing(stage):
    stage.operator.declare(stage.dead_letters, durable=True, arguments=FULL)
    stage.operator.put(stage.dead_letters, b"first")
    server = stage.serve({"echo": echo}, slots=1)
    stage.operator.put(stage.topic, b"{")
    eventually(lambda: server.describe()["extra_consumers"] == 1)
    assert stage.client().call("echo", {}, value="going on") == "going on"
    assert stage.dead_letter().body == b"first"
    assert stage.dead_letter().body == b"{"


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("how", ["call", "cast"])
def test_messages_in_flight_are_handled_though_their_queue_was_deleted(
    stage, gate, witness, how, begun
):
    """So a restart of the broker deletes transient queues: no other server gets the message."""
    server = stage.serve({"wait": gate, "echo": echo}, slots=1, observer=witness)
    caller, own = f"{stage.topic}-caller", f"{stage.topic}.one"
    stage.operator.declare(caller)
    if not begun:
        stage.client().cast("wait", {})
        gate.wait_for(1)
    stage.operator.put(own, message("wait", reply_queue=caller if how == "call" else None)[0])
    if begun:
        gate.wait_for(1)
    else:
        eventually(lambda: server.describe()["in_hand"] == 2)
    for queue in (stage.topic, own):
        stage.operator.delete(queue)
    witness.wait_for("connected again")
    gate.opened.set()
    witness.wait_for("served wait", 1 if begun else 2)
    if how == "call":
        assert content(stage.operator.take(caller))["result"] == "passed"
    assert stage.client().call("echo", {}, value="going on") == "going on"


def test_a_cast_that_waits_for_a_retry_outlives_its_queue(stage, witness, monkeypatch):
    monkeypatch.setattr(handling, "_RETRY_S", 60)
    server = stage.serve({"do": failing(1)}, observer=witness)
    stage.client().cast("do", {})
    eventually(lambda: server.describe()["parked"] == 1)
    for queue in (stage.topic, f"{stage.topic}.one"):
        stage.operator.delete(queue)
    witness.wait_for("served do", 2)


def test_an_answer_that_the_broker_refuses_becomes_an_error(stage, witness):
    evaluate = stage.rabbit.evaluate
    limit = evaluate("element(2, application:get_env(rabbit, max_message_size))")
    evaluate("application:set_env(rabbit, max_message_size, 100000)")
    try:
        stage.serve({"large": lambda _context: "x" * 200_000, "echo": echo}, observer=witness)
        with pytest.raises(RemoteFailure, match="RabbitMQ refuses it"):
            stage.client().call("large", {})
        assert stage.client().call("echo", {}, value=1) == 1
        assert (witness.seen("refused"), witness.seen("lost")) == (1, 0)
    finally:
        evaluate(f"application:set_env(rabbit, max_message_size, {limit})")


def test_the_bytes_in_flight_are_bounded(stage, gate):
    limits = DeliveryLimits(max_message_bytes=100_000)
    server = stage.serve({"wait": gate}, slots=16, limits=limits)
    for _ in range(16):
        stage.operator.put(stage.topic, message("wait", padding="x" * 80_000)[0])
    first_batch = limits.max_bytes_in_flight // 80_000
    gate.wait_for(first_batch)
    assert server.describe()["bytes_in_hand"] < limits.max_bytes_in_flight + 1_000_000
    gate.opened.set()
    gate.wait_for(16 - first_batch)


# Stopping


@pytest.mark.parametrize("options", [{}, QUORUM], ids=["classic", "quorum"])
def test_a_stop_gives_back_what_was_not_begun_with_its_count_and_expiration(stage, gate, options):
    server = stage.serve({"wait": gate}, slots=1, **options)
    stage.client(options=options).cast("wait", {})
    gate.wait_for(1)
    expires = {"x-scheduler-worker-expires": int((time.time() + 50) * 1000)}
    expires |= {"x-scheduler-worker-deliveries": 3}
    own = f"{stage.topic}.one"
    stage.operator.put(own, message("wait")[0], expiration="60000", headers=expires)
    eventually(lambda: server.describe()["in_hand"] == 2)
    stopped = in_thread(server.stop, SOON_S)
    back = stage.operator.take(own)
    gate.opened.set()
    assert stopped.result(SOON_S) is True
    assert gate.is_untouched
    assert not back.delivery_info["redelivered"]
    assert back.headers["x-scheduler-worker-deliveries"] == 3
    assert 0 < int(back.expiration) <= 50_000
    assert back.headers["x-scheduler-worker-expires"] <= expires["x-scheduler-worker-expires"]
