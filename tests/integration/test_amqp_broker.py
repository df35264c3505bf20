"""What our server needs of RabbitMQ and bears of it: queues, connections, alarms, TLS."""

import logging
import queue

import pytest

from scheduler_worker.errors import BusUnavailable, ConfigError
from tests.support.certificates import Authority
from tests.support.handlers import SOON_S, Witness, echo, eventually, in_thread
from tests.support.proxy import Proxy
from tests.support.servers import LOOPBACK, TlsRabbitServer, free_port

pytestmark = pytest.mark.servers

QUORUM = {"rabbit_quorum_queue": True, "rabbit_transient_quorum_queue": True}
OPTIONS = r"amqp_durable_queues, amqp_auto_delete and\s+rabbit_quorum_queue"


@pytest.fixture
def witness():
    return Witness()


# Queues


@pytest.mark.parametrize("options", [QUORUM, {"amqp_durable_queues": True}], ids=["quorum", "old"])
def test_queues_are_declared_as_their_clients_declare_them(stage, options, witness):
    methods = {"echo": echo, "told": lambda _context: None, "break": lambda _context: 1 // 0}
    stage.serve(methods, observer=witness, **options)
    assert stage.client(options=options).call("echo", {}, value=[1]) == [1]
    stage.client(options=options, fanout=True).cast("told", {})
    witness.wait_for("served told")
    stage.client(options=options).cast("break", {})
    assert stage.dead_letter()


def test_restarts_leave_no_queue_behind(stage):
    def queues():
        listed = stage.rabbit.control("list_queues", "name", "--silent").split()
        return {each for each in listed if each.startswith(stage.topic)}

    for _ in range(3):
        stage.serve({"echo": echo}).stop(SOON_S)
    named = {stage.topic, f"{stage.topic}.one", f"{stage.topic}_fanout_one"}
    assert queues() == named


def test_a_queue_of_another_kind_ends_the_start_and_names_the_options(stage):
    stage.operator.declare(stage.topic, durable=True)
    with pytest.raises(ConfigError, match=OPTIONS):
        stage.serve({"echo": echo})


def test_an_exchange_of_another_kind_matters_little(stage):
    stage.operator.declare_exchange(stage.exchange, "topic", durable=True)
    stage.operator.declare_exchange(f"{stage.topic}_fanout", "fanout", durable=True)
    stage.serve({"echo": echo})
    client = stage.client(options={"amqp_durable_queues": True})
    assert client.call("echo", {}, value=1) == 1


def test_a_queue_that_is_of_another_kind_later_is_told_and_tried_again(stage, witness, caplog):
    with Proxy(stage.rabbit.port) as proxy:
        server = stage.serve({"echo": echo}, url=stage.through(proxy), observer=witness)
        assert server.problem() is None
        with proxy.away():
            witness.wait_for("lost")
            stage.operator.delete(stage.topic)
            stage.operator.declare(stage.topic, durable=True)
        with caplog.at_level(logging.ERROR):
            eventually(lambda: "amqp_durable_queues" in (server.problem() or ""))
            assert "RabbitMQ does not serve us" in caplog.text
        stage.operator.delete(stage.topic)
        witness.wait_for("connected again")
        assert stage.client().call("echo", {}, value=1) == 1


def test_a_queue_that_was_deleted_is_declared_again(stage, witness):
    stage.serve({"echo": echo}, observer=witness)
    stage.operator.delete(stage.topic)
    witness.wait_for("connected again")
    assert stage.client().call("echo", {}, value=1) == 1


# Connections


def test_the_next_host_of_the_url_is_tried_when_one_is_away(stage):
    dead, alive = f"guest:guest@{LOOPBACK}:{free_port()}", f"guest:guest@{LOOPBACK}"
    stage.serve({"echo": echo}, url=f"rabbit://{dead},{alive}:{stage.rabbit.port}/")
    assert stage.client().call("echo", {}, value=1) == 1


def test_a_server_that_starts_before_its_broker_waits_for_it(stage):
    with Proxy(stage.rabbit.port) as proxy:
        server = stage.server({"echo": echo}, url=stage.through(proxy))
        with proxy.away():
            started = in_thread(server.start)
            eventually(lambda: "cannot reach RabbitMQ" in (server.problem() or ""))
        assert started.get(timeout=SOON_S) is None
        assert stage.client().call("echo", {}, value=1) == 1


def test_connections_that_the_broker_closed_are_opened_again(stage, gate, witness):
    stage.serve({"wait": gate}, observer=witness)
    client = stage.client()
    answer = in_thread(lambda: client.call("wait", {}))
    gate.wait_for(1)
    stage.rabbit.control("close_all_connections", "by a test")
    witness.wait_for("connected again")
    gate.opened.set()
    assert answer.get(timeout=SOON_S) == "passed"


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_a_connection_that_stalls_is_given_up(stage, gate, witness, way):
    with Proxy(stage.rabbit.port) as proxy:
        beats = {"heartbeat_timeout_threshold": 2}
        stage.serve({"wait": gate}, url=stage.through(proxy), observer=witness, **beats)
        stage.client().cast("wait", {})
        gate.wait_for(1)
        stage.serve({"wait": gate}, name="two")
        with proxy.stalled(way):
            gate.wait_for(1)  # the broker, or the server, has ended the connection
            witness.wait_for("lost")
        witness.wait_for("connected again")


def test_a_vhost_that_is_not_there_ends_the_start(stage):
    with pytest.raises(BusUnavailable, match="not found"):
        stage.serve({"echo": echo}, url=stage.rabbit.url_of("nowhere"))


def test_who_loses_his_rights_says_so_and_waits_for_them(stage, witness):
    control, name = stage.rabbit.control, stage.topic
    control("add_user", name, "secret")
    control("set_permissions", name, ".*", ".*", ".*")
    url = stage.rabbit.url.replace("guest:guest", f"{name}:secret")
    server = stage.serve({"echo": echo}, url=url, observer=witness)
    control("clear_permissions", name)
    control("close_all_user_connections", name, "by a test")
    eventually(lambda: "do not get together" in (server.problem() or ""))
    assert "secret" not in server.problem()
    control("set_permissions", name, ".*", ".*", ".*")
    witness.wait_for("connected again")
    assert stage.client().call("echo", {}, value=1) == 1
    control("delete_user", name)


@pytest.mark.parametrize(
    ("alarm", "all_clear"),
    [
        (("set_vm_memory_high_watermark", "0.00001"), ("set_vm_memory_high_watermark", "0.4")),
        (("set_disk_free_limit", "999999GB"), ("set_disk_free_limit", "50MB")),
    ],
    ids=["memory", "disk"],
)
def test_a_broker_that_takes_nothing_for_a_while_is_waited_for(
    stage, gate, witness, alarm, all_clear
):
    stage.serve({"wait": gate, "echo": echo}, observer=witness)
    client = stage.client()
    answer = in_thread(lambda: client.call("wait", {}))
    gate.wait_for(1)
    stage.rabbit.control(*alarm)
    try:
        gate.opened.set()
        with pytest.raises(queue.Empty):
            answer.get(timeout=0.5)
    finally:
        stage.rabbit.control(*all_clear)
    assert answer.get(timeout=SOON_S) == "passed"
    assert client.call("echo", {}, value="going on") == "going on"
    assert witness.count("lost") == 0


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_rabbit(authority, rabbit_server, tmp_path_factory):
    """A RabbitMQ with a certificate for 127.0.0.1, and for no name."""
    certificate, key = authority.issue("broker", f"IP:{LOOPBACK}")
    directory = tmp_path_factory.mktemp("tls_rabbit")
    with TlsRabbitServer(
        directory, authority=authority.path, certificate=certificate, key=key
    ) as server:
        yield server


@pytest.fixture
def tls(authority):
    certificate, key = authority.issue("worker")
    return {
        "ssl": True,
        "ssl_ca_file": authority.path,
        "ssl_cert_file": certificate,
        "ssl_key_file": key,
    }


def test_with_tls_all_is_as_without(stage, tls_rabbit, tls):
    stage.serve({"echo": echo}, url=tls_rabbit.tls_url(), **tls)
    client = stage.client(url=tls_rabbit.tls_url(), options=tls)
    large = "x" * 1_000_000
    assert client.call("echo", {}, value=large) == large


def test_a_broker_of_another_authority_is_refused(stage, tls_rabbit, tls, tmp_path):
    tls["ssl_ca_file"] = Authority(tmp_path, "stranger").path
    with pytest.raises(BusUnavailable, match="certificate verify failed"):
        stage.serve({"echo": echo}, url=tls_rabbit.tls_url(), **tls)


def test_a_broker_is_verified_where_no_authority_is_named(stage, tls_rabbit, tls):
    del tls["ssl_ca_file"]
    with pytest.raises(BusUnavailable, match="certificate verify failed"):
        stage.serve({"echo": echo}, url=tls_rabbit.tls_url(), **tls)


def test_a_certificate_for_another_host_is_refused(stage, tls_rabbit, tls):
    with pytest.raises(BusUnavailable, match="certificate is not valid for 'localhost'"):
        stage.serve({"echo": echo}, url=tls_rabbit.tls_url("localhost"), **tls)


def test_a_broker_that_wants_our_certificate_and_gets_none_is_told_of(stage, tls_rabbit, tls):
    del tls["ssl_cert_file"], tls["ssl_key_file"]
    server = stage.server({"echo": echo}, url=tls_rabbit.tls_url(), **tls)
    started = in_thread(server.start)
    eventually(lambda: "is [oslo_messaging_rabbit] ssl_cert_file" in (server.problem() or ""))
    server.stop(SOON_S)
    assert started.get(timeout=SOON_S) is None


def test_files_that_are_no_certificates_are_named(stage, tls_rabbit, tls, tmp_path):
    tls["ssl_ca_file"] = tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match="ssl_ca_file"):
        stage.server({"echo": echo}, url=tls_rabbit.tls_url(), **tls)
