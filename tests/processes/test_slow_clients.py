"""Clients that send nothing, or a byte now and then: they cost others nothing."""

import contextlib
import http.client
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.observer import Observer
from tests.support.servers import LOOPBACK
from tests.support.web import listening

SLOW, ORDINARY = 40, 100
"""The former are more than the server has threads."""
HEADERS = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"


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


class Ended(Observer):
    """Why connections were ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def count(self, event: events.Count, *labels: str, by: float = 1) -> None:
        assert (event, by) == (events.HTTP_ENDED, 1)
        self.reasons += labels


@pytest.mark.parametrize(
    "begun",
    [b"", HEADERS[:20], HEADERS + b"x", HEADERS.replace(b"100", b"99999999") + b"x", CHUNKED],
    ids=["nothing", "headers", "body", "huge body", "chunks"],
)
def test_slow_clients_cost_ordinary_requests_nothing(begun):
    with listening(echo, read_timeout_s=600.0) as server, contextlib.ExitStack() as clients:
        for _ in range(SLOW):
            clients.enter_context(connected(server.port)).sendall(begun)
        assert [ask(server.port) for _ in range(ORDINARY)] == [b"x" * 100] * ORDINARY


@pytest.mark.parametrize("begun", [HEADERS[:20], HEADERS], ids=["headers", "body"])
def test_a_request_has_a_time_in_all(begun):
    ended = Ended()
    with listening(echo, ended, read_timeout_s=1.0) as server, connected(server.port) as client:
        client.sendall(begun)
        assert answer_to_a_trickle(client).startswith(b"HTTP/1.1 408 ")
    assert ended.reasons == ["slow"]


def test_a_length_that_is_none_is_refused_at_once():
    with listening(echo, read_timeout_s=600.0) as server, connected(server.port) as client:
        client.sendall(HEADERS.replace(b"100", b"-1"))
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_sends_nothing_is_left():
    ended = Ended()
    with (
        listening(echo, ended, read_timeout_s=1.0) as server,
        connected(server.port) as silent,
        connected(server.port) as idle,
    ):
        idle.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert [silent.recv(1000), idle.recv(1000)] == [b"", b""]
    assert ended.reasons == ["idle", "idle"]


def test_an_address_that_has_too_many_connections_loses_the_one_that_waits_for_longest():
    ended = Ended()
    with (
        listening(echo, ended, read_timeout_s=600.0, connections_per_address=2) as server,
        connected(server.port) as first,
        connected(server.port) as second,
    ):
        assert ask(server.port) == b"x" * 100
        assert first.recv(1000) == b""
        second.sendall(HEADERS + b"x" * 100)
        assert second.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert ended.reasons == ["crowded"]


def test_an_answer_has_a_time_in_all():
    ended, served = Ended(), threading.Event()

    def endless(_: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        try:
            while True:
                yield b"x" * 1_000_000
        finally:
            served.set()

    with listening(endless, ended, read_timeout_s=1.0) as server, connected(server.port) as client:
        client.sendall(HEADERS + b"x" * 100)
        while not served.wait(0.01):
            assert client.recv(50_000)
    assert ended.reasons == ["slow"]


def test_pipelined_requests_are_served_one_after_the_other():
    with listening(echo, read_timeout_s=600.0) as server, connected(server.port) as client:
        client.sendall((HEADERS + b"x" * 100) * 3 + CHUNKED + b"cde\r\n0\r\n\r\n" + HEADERS[:9])
        answers = b""
        while not answers.endswith(b"abcde"):
            answers += client.recv(1000)
        assert answers.count(b"HTTP/1.1 200 ") == 4
        client.sendall(HEADERS[9:] + b"y" * 100)
        while not answers.endswith(b"y" * 100):
            answers += client.recv(1000)


@pytest.mark.parametrize("begun", [b"", b"\x16"], ids=["nothing", "a byte"])
def test_slow_handshakes_cost_ordinary_requests_nothing(authority, begun):
    certificate, key = authority.issue("api")
    settings = {"certificate_file": str(certificate), "key_file": str(key)}
    trust = ssl.create_default_context(cafile=str(authority.path))
    with (
        listening(echo, read_timeout_s=600.0, **settings) as server,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(SLOW):
            clients.enter_context(connected(server.port)).sendall(begun)
        connection = http.client.HTTPSConnection("localhost", server.port, context=trust)
        with contextlib.closing(connection):
            connection.request("POST", "/", b"x")
            assert connection.getresponse().read() == b"x"
        with connected(server.port) as client:
            client.sendall(HEADERS)
            assert b"HTTPS" in client.recv(1000)
