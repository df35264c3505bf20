"""oVirt's real Python SDK as the client of the REST API, over HTTP and over TLS."""

import http.client
import inspect
import logging
import socket
import threading
from typing import Any

import ovirtsdk4 as sdk
import pytest
from ovirtsdk4 import types

from scheduler_worker.api import resource_types as ours
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.compose.api import ApiServer
from scheduler_worker.errors import ConfigError
from tests.support.patience import SOON_S
from tests.support.rest import API, BALANCE, CPU, CPU_WEIGHT, NONE, Rest
from tests.support.servers import LOOPBACK, free_port
from tests.support.threads import in_thread
from tests.support.web import PASSWORD, basic, listening


@pytest.fixture
def rest():
    return Rest("Default")


@pytest.fixture
def server(rest):
    with listening(rest.parts.application, threads=4) as found:
        yield found


def test_the_sdk_reads_units_and_a_policy_with_its_members(server):
    """What else it sends is recorded in ``tests/samples/ovirt_sdk``."""
    url = f"{server.url}{API}"
    with sdk.Connection(
        url=url, username="admin@internal", password=PASSWORD, insecure=True
    ) as connection:
        engine = connection.system_service()
        kinds = {each.id: each.type for each in engine.scheduling_policy_units_service().list()}
        assert (kinds[CPU], kinds[CPU_WEIGHT], kinds[BALANCE]) == (
            types.PolicyUnitType.FILTER,
            types.PolicyUnitType.WEIGHT,
            types.PolicyUnitType.LOAD_BALANCING,
        )
        policies = engine.scheduling_policies_service()
        assert [each.id for each in policies.list() if each.default_policy] == [NONE]
        none = policies.policy_service(NONE)
        assert none.get(follow="weights").weight[0].factor == 2
        assert [each.id for each in connection.follow_link(none.get().weight)] == [CPU_WEIGHT]
        assert none.get().properties[0].name == "CpuOverCommitDurationMinutes"
        with pytest.raises(sdk.Error, match="locked"):
            none.remove()
        with pytest.raises(sdk.NotFoundError):
            policies.policy_service("unknown").get()


def test_a_wrong_password_is_an_error_of_authentication(server):
    connection = sdk.Connection(
        url=f"{server.url}{API}", username="admin@internal", password="wrong one", insecure=True
    )
    with pytest.raises(sdk.AuthError, match="not correct"):
        connection.system_service().get()
    connection.close(logout=False)


# The server


def post(port, body, **headers):
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=SOON_S)
    headers = {"Content-Type": "application/xml", **basic("admin@internal"), **headers}
    is_chunked = not isinstance(body, bytes)
    connection.request(
        "POST", f"{API}/schedulingpolicies", body, headers, encode_chunked=is_chunked
    )
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


NAMED = b"<scheduling_policy><name>%s</name></scheduling_policy>"


def test_a_body_of_unknown_length_is_read(server):
    answer, _ = post(server.port, iter([NAMED % b"chunked"]), **{"Transfer-Encoding": "chunked"})
    assert answer.status == 201


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_refused_and_the_next_request_served(server, rest, chunked):
    before = rest.state()
    part = b"x" * 1024 * 1024
    if chunked:
        answer, text = post(server.port, iter([part] * 8), **{"Transfer-Encoding": "chunked"})
    else:
        answer, text = post(server.port, NAMED % (part * 8))
    assert (answer.status, answer.getheader("Connection")) == (400, "close")
    assert b"more than 100000 bytes" in text
    assert rest.state() == before
    assert post(server.port, NAMED % b"small")[0].status == 201


def test_a_request_in_hand_is_finished_before_the_server_stops(rest):
    entered, may_go_on = threading.Event(), threading.Event()

    def slow(environ, start):
        entered.set()
        assert may_go_on.wait(SOON_S)
        return rest.parts.application(environ, start)

    server = ApiServer(ApiSettings(port=0, threads=2), slow)
    server.start()
    asking = in_thread(post, server.port, NAMED % b"last")
    assert entered.wait(SOON_S)
    stopping = in_thread(server.stop, SOON_S)
    may_go_on.set()
    stopping.result(SOON_S)
    assert asking.result(SOON_S)[0].status == 201
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, server.port)):
        pass


def test_a_port_that_is_taken_is_named(server, rest):
    with pytest.raises(ConfigError, match=r"\[api\] port: cannot listen"):
        ApiServer(ApiSettings(port=server.port), rest.parts.application)


def test_two_servers_may_share_a_port(rest):
    shared: dict[str, Any] = {"port": free_port(), "reuse_port": True}
    with listening(rest.parts.application, **shared) as second:
        with listening(rest.parts.application, **shared):
            pass
        assert post(second.port, NAMED % b"second")[0].status == 201


def test_over_tls(rest, authority):
    certificate, key = authority.issue("server", f"IP:{LOOPBACK}")
    files = {"certificate_file": str(certificate), "key_file": str(key)}
    with (
        listening(rest.parts.application, **files) as server,
        sdk.Connection(
            url=f"{server.url}{API}",
            username="admin@internal",
            password=PASSWORD,
            ca_file=str(authority.path),
        ) as connection,
    ):
        assert connection.system_service().scheduling_policies_service().list()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path):
    settings = ApiSettings(port=0, certificate_file=str(tmp_path / "server.pem"))
    with pytest.raises(ConfigError, match="certificate_file"):
        ApiServer(settings, lambda *_: [])


def test_an_answer_repeats_no_host_that_a_client_sends(server):
    answer, _ = post(server.port, NAMED % b"hosted", Host="elsewhere.example")
    assert answer.getheader("Location").startswith(f"{API}/schedulingpolicies/")


def test_addresses_come_from_as_many_proxies_as_there_are(rest, caplog):
    caplog.set_level(logging.INFO, "scheduler_worker.operations.access")
    forwarded = {"X-Forwarded-For": "198.51.100.9, 192.0.2.7"}
    with listening(rest.parts.application, proxies=1) as server:
        post(server.port, NAMED % b"proxied", **forwarded)
    assert caplog.messages[-1].startswith("192.0.2.7 admin@internal ")


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        (ours.Cluster, types.Cluster),
        (ours.Policy, types.SchedulingPolicy),
        (ours.Unit, types.SchedulingPolicyUnit),
        (ours.Filter, types.Filter),
        (ours.Weight, types.Weight),
        (ours.Balance, types.Balance),
    ],
    ids=lambda kind: kind.__name__,
)
def test_what_the_client_library_sets_is_known_or_ignored(kind, theirs):
    names = set(inspect.signature(theirs.__init__).parameters) - {"self"}
    assert names <= {*kind.__struct_fields__} | kind.ignored
