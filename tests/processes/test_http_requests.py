"""Requests that a proxy in front may take for other ones are refused before the application."""

import socket
from typing import Any

import pytest

from tests.support.servers import LOOPBACK
from tests.support.web import listening

HOST = b"Host: h\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = {
    "two lengths": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a negative length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    "a signed length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
    "a length and chunks": CHUNKED.replace(HOST, HOST + b"Content-Length: 3\r\n") + b"0\r\n\r\n",
    "chunked twice": CHUNKED.replace(b": chunked", b": chunked, chunked") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"x\r\n",
    "a chunk with a sign": CHUNKED + b"+1\r\nx\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "a chunk of half a line": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
    "an endless line of a chunk": CHUNKED + b"1;" + b"x" * 5000,
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
    "NUL in a field": b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
    "NUL in the path": b"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n",
    "half an end of a line": b"GET / HTTP/1.1\r\nHost: h\r\nX: a\rY: b\r\n\r\n",
    "lines without CR": b"GET / HTTP/1.1\nHost: h\n\n",
    "a field of two lines": b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
    "a space before a colon": b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
    "a field without a name": b"GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
}


def exchange(request: bytes) -> tuple[list[bytes], bytes]:
    """The bodies that an application gets, and what the client gets until the connection ends."""
    reached = []

    def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        reached.append(environ["wsgi.input"].read())
        start_response("200 OK", [("Content-Length", "0")])
        return []

    with (
        listening(echo, read_timeout_s=600.0) as server,
        socket.create_connection((LOOPBACK, server.port), timeout=30) as client,
    ):
        client.sendall(request)
        answer = b""
        while piece := client.recv(10_000):
            answer += piece
    return reached, answer


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_an_ambiguous_request_is_refused_and_the_connection_closed(request_, caplog):
    reached, answer = exchange(request_)
    assert not reached
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert not caplog.records


def test_headers_that_are_too_long_are_refused():
    reached, answer = exchange(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 200_000)
    assert not reached
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (CHUNKED + b"3;a=b\r\nabc\r\n02\r\nde\r\n0\r\nTrailer: x\r\n\r\n", b"abcde"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", b"ab"),
        (b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", b""),
        (b"GET / HTTP/1.0\r\n\r\n", b""),
    ],
)
def test_an_ordinary_request_is_served(request_, body):
    reached, answer = exchange(request_.replace(HOST, HOST + b"Connection: close\r\n"))
    assert reached == [body]
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nServer: scheduler_worker\r\n" in answer


def test_a_field_with_an_underscore_is_not_taken_for_another():
    with listening(forwarded_for, threads=2) as server:
        with socket.create_connection((LOOPBACK, server.port), timeout=30) as client:
            client.sendall(b"GET / HTTP/1.0\r\nX_Forwarded_For: forged\r\n\r\n")
            assert b"X-Forwarded-For: none\r\n" in client.recv(10_000)


def forwarded_for(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    seen = environ.get("HTTP_X_FORWARDED_FOR", "none")
    start_response("200 OK", [("Content-Length", "0"), ("X-Forwarded-For", seen)])
    return []
