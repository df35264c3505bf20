"""Clients that send a byte now and then, without logging in: they cost others nothing."""

import contextlib
import http.client
import itertools
import socket
import ssl
from typing import Any

import pytest

from tests.support.servers import LOOPBACK
from tests.support.web import listening

SLOW, ORDINARY = 10, 100
HEADERS = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"


def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def connected(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=30)


def ask(port: int, body: bytes = b"x" * 100) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", "/", body)
        return connection.getresponse().read()


def answer_to_a_trickle(client: socket.socket) -> bytes:
    """What a client gets that sends a byte whenever it has heard nothing for a moment."""
    client.settimeout(0.05)
    for _ in itertools.count():
        try:
            return client.recv(1000)
        except TimeoutError:
            with contextlib.suppress(OSError):
                client.send(b"a")
    raise AssertionError


@pytest.mark.parametrize(
    "begun",
    [HEADERS[:20], HEADERS + b"x", HEADERS.replace(b"100", b"99999999") + b"x"],
    ids=["headers", "body", "huge body"],
)
def test_slow_clients_cost_ordinary_requests_nothing(begun):
    with listening(echo, read_timeout_s=600.0) as server, contextlib.ExitStack() as clients:
        for _ in range(SLOW):
            clients.enter_context(connected(server.port)).sendall(begun)
        assert [ask(server.port) for _ in range(ORDINARY)] == [b"x" * 100] * ORDINARY


@pytest.mark.parametrize("begun", [HEADERS[:20], HEADERS], ids=["headers", "body"])
def test_a_request_has_a_time_in_all(begun):
    with listening(echo, read_timeout_s=1.0) as server, connected(server.port) as client:
        client.sendall(begun)
        assert answer_to_a_trickle(client).startswith(b"HTTP/1.1 408 ")


def test_a_length_that_is_none_is_refused_at_once():
    with listening(echo, read_timeout_s=600.0) as server, connected(server.port) as client:
        client.sendall(HEADERS.replace(b"100", b"-1"))
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_slow_handshakes_cost_ordinary_requests_nothing(authority):
    certificate, key = authority.issue("api")
    settings = {"certificate_file": str(certificate), "key_file": str(key)}
    trust = ssl.create_default_context(cafile=str(authority.path))
    with (
        listening(echo, read_timeout_s=600.0, **settings) as server,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(SLOW):
            clients.enter_context(connected(server.port)).sendall(b"\x16")
        connection = http.client.HTTPSConnection("localhost", server.port, context=trust)
        with contextlib.closing(connection):
            connection.request("POST", "/", b"x")
            assert connection.getresponse().read() == b"x"
        with connected(server.port) as client:
            client.sendall(HEADERS)
            assert b"HTTPS" in client.recv(1000)
