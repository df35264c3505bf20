"""A request as it comes, piece by piece: its head, which is checked, and its body."""

import contextlib
import os
import re
import socket
import ssl
from collections.abc import Generator, Iterator
from typing import Any

from cheroot import errors
from cheroot import server as cheroot_server

MAX_HEADERS = 64 * 1024
"""Upper bound of a request's headers, in bytes."""
_MOST_DISCARDED = 64 * 1024 * 1024
PIECE = 64 * 1024
"""Bytes that are received at a time."""
_MAX_LINE = 4096
"""Bytes of a line between chunks."""
_PLAIN = b"This port speaks HTTPS alone.\n"
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\n[ \t]")
"""In a head: control characters, half ends of lines, and fields that go on in a further line."""
_FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_ONCE = {b"Authorization", b"Content-Length", b"Content-Type", b"Host", b"Transfer-Encoding"}
"""Fields of a head of which a proxy in front may heed another one than this server."""


class Received:
    """What a client has sent, and no request has taken yet. Nothing here waits."""

    closed = False

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = bytearray()
        self._searched = 0
        self.is_at_end = False
        """Whether the client sends no more."""

    def __len__(self) -> int:
        return len(self._bytes)

    def receive(self) -> bool:
        """Take a piece of what has come; whether there was one.

        Raises OSError, and FatalSSLAlert where the client does not speak TLS.
        """
        try:
            piece = self._socket.recv(PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(_PLAIN)}\r\n\r\n"
                with contextlib.suppress(OSError):
                    os.write(self._socket.fileno(), head.encode() + _PLAIN)
            raise errors.FatalSSLAlert(*error.args) from error
        self.is_at_end = not piece
        self._bytes += piece
        return bool(piece)

    def head(self) -> bytes | None:
        """The head of a request, which stays here; None: it has not come whole."""
        found = _END_OF_HEAD.search(self._bytes, max(0, self._searched - 3))
        self._searched = len(self._bytes)
        return bytes(self._bytes[: found.end()]) if found else None

    def line(self) -> bytes | None:
        """A line with its end; None: it has not come whole. Raises ValueError for a long one."""
        size = self._bytes.find(b"\n", 0, _MAX_LINE) + 1
        if not size and len(self._bytes) >= _MAX_LINE:
            raise ValueError("A line of the body is too long.")
        return self.read(size) if size else None

    def readline(self, size: int = -1) -> bytes:
        end = self._bytes.find(b"\n") + 1 or len(self._bytes)
        return self.read(end if size < 0 else min(size, end))

    def read(self, size: int) -> bytes:
        """At most so many bytes."""
        taken = bytes(self._bytes[:size])
        del self._bytes[:size]
        self._searched = 0
        return taken

    def close(self) -> None:
        self.closed = True


class Body:
    """A request's body as it comes; of one that is too long only the begin is kept."""

    def __init__(self, source: Received, length: int | None, most: int) -> None:
        """``length`` None: it comes in chunks. ``most`` bytes are kept, and one more."""
        self.content = bytearray()
        self._source, self._most, self._passed = source, most, 0
        self._pieces = self._chunks() if length is None else self._piece(length)

    def has_come(self) -> bool:
        """Take what has come; whether that is all. Raises ValueError for chunks that are none."""
        return next(self._pieces, True) is True or self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether it is so long that its end is not awaited."""
        return self._passed > self._most + _MOST_DISCARDED

    def _piece(self, size: int) -> Iterator[None]:
        """Take so many bytes; yields whenever more has to come."""
        while size:
            while not (piece := self._source.read(min(size, PIECE))):
                yield
            size -= len(piece)
            self._passed += len(piece)
            # The rest is not kept: many clients read no answer before they have sent everything.
            self.content += piece[: max(0, self._most + 1 - len(self.content))]

    def _chunks(self) -> Generator[None]:
        while True:
            size = _CHUNK_SIZE.fullmatch((yield from self._line()))
            if size is None:
                raise ValueError("Malformed size of a chunk.")
            if int(size[1], 16) == 0:
                break
            yield from self._piece(int(size[1], 16))
            if (yield from self._line()) != b"\r\n":
                raise ValueError("Malformed end of a chunk.")
        while (yield from self._line()) != b"\r\n":
            pass  # fields after the body mean nothing here

    def _line(self) -> Generator[None, None, bytes]:
        while (line := self._source.line()) is None:
            yield
        return line


class _Fields(dict[bytes, bytes]):
    """Of a request's head. Raises ValueError for a second one that may be there once."""

    def __setitem__(self, name: bytes, value: bytes) -> None:
        if name in _ONCE and name in self:
            raise ValueError(f"{name.decode()} is there twice.")
        super().__setitem__(name, value)


class _FieldReader(cheroot_server.HeaderReader):  # type: ignore[misc]
    def _transform_key(self, key_name: bytes) -> Any:
        if not _FIELD_NAME.fullmatch(key_name):
            raise ValueError("Malformed name of a header field.")
        return super()._transform_key(key_name)

    def _allow_header(self, key_name: bytes) -> bool:
        """WSGI would take the name for that of another field, with hyphens."""
        return b"_" not in key_name


class HttpRequest(cheroot_server.HTTPRequest):  # type: ignore[misc]
    """One that is parsed once it has come, so that nothing waits."""

    header_reader = _FieldReader()
    body: Body | None = None

    def has_come(self) -> bool:
        """Whether nothing more is waited for; of a request that is refused nothing is."""
        received = self.conn.rfile
        if self.body is None:
            head = received.head()
            if head is None and len(received) <= MAX_HEADERS:
                return False
            self._begin(head)
        try:
            return self.body is None or self.body.has_come()
        except ValueError as error:
            self.refuse(str(error))
            return True

    def _begin(self, head: bytes | None) -> None:
        """Parse the head; sets ``body`` unless the request is refused."""
        if head is None:
            self.simple_response("431 Request Header Fields Too Large")
        elif _FORBIDDEN.search(head):
            self.refuse("A control character in the head of the request.")
        else:
            super().parse_request()
        if self.ready:
            length = None if self.chunked_read else int(self.inheaders.get(b"Content-Length", 0))
            most = self.server.max_body
            self.body = Body(self.conn.rfile, length, most)
            self.conn.allow(most if length is None else min(length, most))

    def parse_request(self) -> None:
        """Nothing: ``has_come`` has done it."""

    def read_request_headers(self) -> bool:
        self.inheaders = _Fields()
        if not super().read_request_headers():
            return False
        problem = self._problem()
        if problem:
            self.refuse(problem)
        return problem is None

    def _problem(self) -> str | None:
        """What a proxy in front may take for another request than this server."""
        fields = self.inheaders
        is_current = self.response_protocol == "HTTP/1.1"
        if is_current and b"Host" not in fields:
            return "Host is missing."
        if not fields.get(b"Content-Length", b"0").isdigit():
            return "Malformed Content-Length."
        if b"Transfer-Encoding" not in fields:
            return None
        if b"Content-Length" in fields or not is_current:
            return "Transfer-Encoding is there beside Content-Length, or in HTTP/1.0."
        if fields[b"Transfer-Encoding"].lower() != b"chunked":
            return "Transfer-Encoding is not chunked."
        return None

    def refuse(self, problem: str) -> None:
        """Answer 400."""
        self.ready = False
        self.simple_response("400 Bad Request", f"{problem}\n")

    def simple_response(self, status: str, msg: str = "") -> None:
        """Answer without the application, and close the connection."""
        self.status, self.close_connection = status.encode(), True
        self.outheaders = [
            (b"Content-Length", str(len(msg)).encode()),
            (b"Content-Type", b"text/plain"),
            (b"Connection", b"close"),
        ]
        self.ensure_headers_sent()
        self.conn.wfile.write(msg.encode())

    def send_headers(self) -> None:
        if (b"Connection", b"close") in self.outheaders or (self.body and self.body.is_cut):
            self.close_connection = True
        self.conn.allow(int(dict(self.outheaders).get(b"Content-Length", 0)))
        super().send_headers()
