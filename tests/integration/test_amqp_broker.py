"""Our server and RabbitMQ: queues, connections, permissions, alarms, TLS."""

import contextlib
import logging
import queue

import pytest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import BusUnavailable, CallTimeout, ConfigError, Undeliverable
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.nova import baseapi
from scheduler_worker.rpc.serving import server as amqp_server
from tests.support.certificates import Authority
from tests.support.foreign import ForeignServer
from tests.support.handlers import echo
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.servers import LOOPBACK, RabbitServer, free_port
from tests.support.threads import in_thread
from tests.support.workers import write_config

QUORUM = {"rabbit_quorum_queue": True, "rabbit_transient_quorum_queue": True}
STREAMS = {**QUORUM, "rabbit_stream_fanout": True, "rabbit_qos_prefetch_count": 50}
OPTIONS = r"amqp_durable_queues, amqp_auto_delete and\s+rabbit_quorum_queue"


# Queues


@pytest.mark.parametrize("options", [QUORUM, {"amqp_durable_queues": True}], ids=["quorum", "old"])
def test_queues_are_declared_as_clients_declare_them(stage, options, witness):
    methods = {"echo": echo, "notify": lambda _context: None, "break": lambda _context: 1 // 0}
    stage.serve(methods, observer=witness, **options)
    assert stage.client(options=options).call("echo", {}, value=[1]) == [1]
    stage.client(options=options, fanout=True).cast("notify", {})
    witness.wait_for("served notify")
    stage.client(options=options).cast("break", {})
    assert stage.dead_letter()


def test_fanouts_arrive_beside_a_server_that_reads_them_from_a_stream(stage):
    """As a nova-scheduler with the options that deployment tools set."""
    got = queue.Queue()
    note = Endpoint(None, "1.0", {"note": lambda _: got.put("theirs")})
    theirs = ForeignServer(stage.bus(**STREAMS), stage.topic, "theirs", [note])
    theirs.start()
    stage.serve({"note": lambda _: got.put("ours")}, name="ours", **STREAMS)
    stage.client(options=STREAMS, fanout=True).cast("note", {})
    assert {got.get(timeout=SOON_S), got.get(timeout=SOON_S)} == {"theirs", "ours"}
    assert stage.client(options=STREAMS, server="ours").call("note", {}) is None
    theirs.stop()


def test_restarts_leave_no_queue_behind(stage):
    def queues():
        return {each for each in stage.rabbit.queues() if each.startswith(stage.topic)}

    for _ in range(3):
        stage.serve({"echo": echo}, endpoints=[baseapi()]).stop(SOON_S)
    named = {stage.topic, f"{stage.topic}.one", f"{stage.topic}_fanout_one"}
    assert queues() == named | {stage.dead_letters}


def test_a_queue_of_another_kind_ends_the_start_and_names_the_options(stage):
    stage.operator.declare(stage.topic, durable=True)
    with pytest.raises(ConfigError, match=OPTIONS):
        stage.serve({"echo": echo})


def test_an_exchange_of_another_kind_will_do(stage):
    stage.operator.declare_exchange(stage.exchange, "topic", durable=True)
    stage.operator.declare_exchange(f"{stage.topic}_fanout", "fanout", durable=True)
    stage.serve({"echo": echo})
    client = stage.client(options={"amqp_durable_queues": True})
    assert client.call("echo", {}, value=1) == 1


def test_a_queue_of_another_kind_on_reconnect_is_reported_and_retried(
    stage, proxy, witness, caplog
):
    server = stage.serve({"echo": echo}, url=stage.through(proxy), observer=witness)
    assert server.problem() is None
    with proxy.away():
        witness.wait_for("lost")
        stage.operator.delete(stage.topic)
        stage.operator.declare(stage.topic, durable=True)
    with caplog.at_level(logging.ERROR):
        eventually(lambda: "amqp_durable_queues" in (server.problem() or ""))
        eventually(lambda: "RabbitMQ does not serve us" in caplog.text)
    stage.operator.delete(stage.topic)
    witness.wait_for("connected again")
    assert stage.client().call("echo", {}, value=1) == 1


# Connections


def test_the_next_host_of_the_url_is_tried_when_one_is_away(stage):
    dead, alive = f"guest:guest@{LOOPBACK}:{free_port()}", f"guest:guest@{LOOPBACK}"
    stage.serve({"echo": echo}, url=f"rabbit://{dead},{alive}:{stage.rabbit.port}/")
    assert stage.client().call("echo", {}, value=1) == 1


def test_a_server_that_starts_before_its_broker_waits_for_it(stage, proxy):
    server = stage.server({"echo": echo}, url=stage.through(proxy))
    with proxy.away():
        started = in_thread(server.start)
        eventually(lambda: "cannot reach RabbitMQ" in (server.problem() or ""))
    assert started.result(SOON_S) is None
    assert stage.client().call("echo", {}, value=1) == 1


def test_a_workers_own_queue_expires_after_the_worker(stage):
    options = {"rabbit_transient_queues_ttl": 1}
    stage.serve({"echo": echo}, **options).stop(SOON_S)
    eventually(lambda: f"{stage.topic}.one" not in stage.rabbit.queues())
    assert stage.topic in stage.rabbit.queues()


def test_a_workers_own_queue_without_expiry_will_do(stage):
    stage.operator.declare(f"{stage.topic}.one")
    stage.serve({"echo": echo})
    assert stage.client(server="one").call("echo", {}, value=1) == 1


def test_two_workers_under_one_name_are_reported(stage, caplog, monkeypatch):
    monkeypatch.setattr(amqp_server, "CHECK_S", 0.05)
    with caplog.at_level(logging.INFO):
        first, second = (stage.serve({"echo": echo}) for _ in range(2))
        warning = f"Another worker runs under the name one: the queue {stage.topic}.one has 2"
        eventually(lambda: caplog.text.count(warning) == 2)  # each of them logs it
        assert second.describe()["namesakes"] is True
        second.stop(SOON_S)
        eventually(lambda: "No other worker runs under the name one any more" in caplog.text)
        assert first.describe()["namesakes"] is False


def test_a_silent_broker_is_a_problem_before_the_connection_is_given_up(stage, proxy, witness):
    heartbeats = {"heartbeat_timeout_threshold": 3}
    server = stage.serve({"echo": echo}, url=stage.through(proxy), observer=witness, **heartbeats)
    problem = "has heard nothing from RabbitMQ"
    with proxy.stalled("to_client"):
        eventually(lambda: problem in (server.problem() or ""))
        assert witness.seen("lost") == 0
    eventually(lambda: server.problem() is None)


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_a_stalled_connection_is_given_up(stage, proxy, gate, witness, way):
    heartbeats = {"heartbeat_timeout_threshold": 2}
    stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness, **heartbeats)
    stage.client().cast("wait", {})
    gate.wait_for(1)
    stage.serve({"wait": gate}, name="two")
    with proxy.stalled(way):
        gate.wait_for(1)  # the broker, or the server, has ended the connection
        witness.wait_for("lost")
    witness.wait_for("connected again")


def test_a_missing_vhost_ends_the_start(stage):
    with pytest.raises(BusUnavailable, match="not found"):
        stage.serve({"echo": echo}, url=stage.rabbit.url_of("nowhere"))


@pytest.mark.deep
def test_lost_permissions_are_reported_and_waited_for(stage, witness):
    with stage.account() as account:
        server = stage.serve({"echo": echo}, url=account.url, observer=witness)
        stage.rabbit.forbid(account.name)
        stage.rabbit.close_connections(account.name)
        eventually(lambda: "refuses this worker" in (server.problem() or ""))
        assert "secret" not in server.problem()
        account.permit()
        witness.wait_for("connected again")
        assert stage.client().call("echo", {}, value=1) == 1


KNOWN, EXCHANGES = "amq.default|{exchange}|{topic}.*", "{exchange}|{topic}_fanout"


@pytest.mark.parametrize(
    ("configure", "write", "read", "complaint"),
    [
        ("", KNOWN, KNOWN, "the configure permission on the exchange"),
        (KNOWN, "", KNOWN, "the write permission on the queue"),
        (KNOWN, KNOWN, "", "write permission on the queue .* and read on the exchange"),
        (KNOWN, KNOWN, EXCHANGES, "the read permission on the queue"),
        (KNOWN, "{exchange}|{topic}.*", KNOWN, "the write permission on 'amq.default'"),
    ],
)
def test_the_start_names_the_missing_permission(stage, configure, write, read, complaint):
    names = {"exchange": stage.exchange, "topic": stage.topic}
    with stage.account() as account:
        account.set(*(f"^({each.format(**names)})$" for each in (configure, write, read)))
        with pytest.raises(BusUnavailable, match=complaint):
            stage.serve({"echo": echo}, url=account.url)


@pytest.mark.deep
def test_a_lost_permission_to_answer_is_retried_with_backoff(stage, witness, monkeypatch):
    monkeypatch.setattr(amqp_server, "_LASTED_S", 0)
    with stage.account() as account:
        server = stage.serve({"echo": echo}, url=account.url, observer=witness)
        account.permit(without_answers=True)
        with contextlib.suppress(CallTimeout):
            stage.client(timeout_s=0.5).call("echo", {}, value=1)
        stage.rabbit.close_connections(account.name)
        eventually(lambda: "write permission on 'amq.default'" in (server.problem() or ""))
        account.permit()
        witness.wait_for("connected again")
        assert stage.client().call("echo", {}, value=1) == 1


def test_answers_wait_for_a_blocked_broker(stage, gate, witness):
    server = stage.serve({"wait": gate, "echo": echo}, observer=witness)
    client = stage.client(timeout_s=NEVER_S)
    answer = in_thread(client.call, "wait", {})
    gate.wait_for(1)
    stage.rabbit.may_use(memory=0.00001)
    try:
        gate.opened.set()
        blocked = "takes no messages: RabbitMQ has an alarm of memory or disk"
        eventually(lambda: server.problem() == blocked)
        assert not answer.done()
    finally:
        stage.rabbit.may_use(memory=0.4)
    assert answer.result(SOON_S) == "passed"
    assert client.call("echo", {}, value="going on") == "going on"
    assert witness.seen("lost") == 0
    eventually(lambda: server.problem() is None)


# TLS


@pytest.fixture(scope="module")
def tls_rabbit(authority, rabbit_server, tmp_path_factory):
    """The URL of a RabbitMQ whose certificate is for 127.0.0.1 and for no host name."""
    certificate, key = authority.issue("broker", f"IP:{LOOPBACK}")
    address = f"{LOOPBACK}:{free_port()}"
    configuration = {
        "listeners.ssl.default": address,
        "ssl_options.cacertfile": authority.path,
        "ssl_options.certfile": certificate,
        "ssl_options.keyfile": key,
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "true",
    }
    with RabbitServer(tmp_path_factory.mktemp("tls_rabbit"), configuration):
        yield f"rabbit://guest:guest@{address}/"


@pytest.fixture
def tls(authority):
    certificate, key = authority.issue("worker")
    return {
        "ssl": True,
        "ssl_ca_file": authority.path,
        "ssl_cert_file": certificate,
        "ssl_key_file": key,
    }


@pytest.mark.deep
def test_calls_and_large_answers_pass_through_tls(stage, tls_rabbit, tls):
    stage.serve({"echo": echo}, url=tls_rabbit, **tls)
    client = stage.client(url=tls_rabbit, options=tls)
    large = "x" * 1_000_000
    assert client.call("echo", {}, value=large) == large


@pytest.mark.parametrize(
    ("trusted", "host", "error"),
    [
        ("stranger", LOOPBACK, "certificate verify failed"),
        ("the system's", LOOPBACK, "certificate verify failed"),
        ("ours", "localhost", "certificate is not valid for 'localhost'"),
    ],
)
def test_a_broker_that_cannot_be_trusted_is_refused(
    stage, tls_rabbit, tls, tmp_path, trusted, host, error
):
    if trusted != "ours":
        del tls["ssl_ca_file"]
    if trusted == "stranger":
        tls["ssl_ca_file"] = Authority(tmp_path, "stranger").path
    with pytest.raises(BusUnavailable, match=error):
        stage.serve({"echo": echo}, url=tls_rabbit.replace(LOOPBACK, host), **tls)


def test_a_missing_client_certificate_is_hinted_at(stage, tls_rabbit, tls):
    del tls["ssl_cert_file"], tls["ssl_key_file"]
    server = stage.server({"echo": echo}, url=tls_rabbit, **tls)
    started = in_thread(server.start)
    eventually(lambda: "is [oslo_messaging_rabbit] ssl_cert_file" in (server.problem() or ""))
    server.stop(SOON_S)
    assert started.result(SOON_S) is None


def test_a_client_connects_with_tls_by_a_file_alone(stage, tls_rabbit, tls, tmp_path):
    default = {"transport_url": tls_rabbit}
    path = write_config(tmp_path / "client.conf", DEFAULT=default, oslo_messaging_rabbit=tls)
    connected = SchedulerClient.connect(config_file=path, topic=stage.topic, timeout_s=SOON_S)
    with connected as client, pytest.raises(Undeliverable, match="Nobody listens"):
        client.ping()
