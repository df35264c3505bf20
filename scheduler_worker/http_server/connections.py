"""Connections: they wait in a selector, and get a thread when a request has come whole."""

import contextlib
import errno
import queue
import selectors
import socket
import threading
import time
from collections.abc import Collection
from typing import Any

from cheroot import errors
from cheroot import server as cheroot_server
from cheroot.makefile import BufferedWriter

from scheduler_worker.http_server.requests import PIECE, HttpRequest, Received

_SLOWEST = 16 * 1024
"""Bytes of a body or an answer that have to pass in a second, beyond ``read_timeout``."""
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class HttpConnection(cheroot_server.HTTPConnection):  # type: ignore[misc]
    """One that gets a thread when there is something to do, and does not wait in it to read."""

    def __init__(self, server: Any, sock: socket.socket) -> None:
        super().__init__(server, sock)
        sock.setblocking(False)
        self.rfile = Received(sock)
        self.wfile = BufferedWriter(_Sender(sock, self))
        self.is_waiting = True
        """Whether the client has to send something first."""
        self._expect()

    def _expect(self) -> None:
        self._request = HttpRequest(self.server, self)
        self.allow(0)

    def allow(self, size: int) -> None:
        """From now on so many bytes may pass, as slowly as is allowed."""
        self.until_s = time.monotonic() + self.server.timeout + size / _SLOWEST

    def RequestHandlerClass(self, *_: object) -> HttpRequest:
        return self._request

    def communicate(self) -> bool:
        """Serve the request if it has come whole; whether to keep the connection."""
        try:
            while not self._request.has_come():
                if time.monotonic() >= self.until_s:
                    self._end_late()
                    return False
                if not self.rfile.receive():
                    return not self.rfile.is_at_end
            if not self._request.ready:
                self.server.ended("refused")
                return False
            if not super().communicate():
                return False
            self._expect()
            self.is_waiting = not (self.rfile or self.rfile.receive())
        except (OSError, errors.FatalSSLAlert):
            return False
        return not self.rfile.is_at_end

    def _end_late(self) -> None:
        has_begun = self._request.body is not None or len(self.rfile) > 0
        self.server.ended("slow" if has_begun else "idle")
        if has_begun:
            self._request.simple_response("408 Request Timeout")

    def close(self) -> None:
        self.server.reception.forget(self)
        super().close()


class _Sender(socket.SocketIO):
    """The raw writer of a connection; raises TimeoutError at its end.

    A socket's own timeout begins again with each byte.
    """

    def __init__(self, sock: socket.socket, connection: HttpConnection) -> None:
        super().__init__(sock, "wb")
        self._socket, self._connection = sock, connection

    def write(self, data: Any) -> int | None:
        try:
            left_s = self._connection.until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left_s)
            return super().write(data)
        except TimeoutError:
            self._connection.server.ended("slow")
            raise
        finally:
            self._socket.setblocking(False)


class Reception:
    """Accepts connections, and holds them while they wait for their clients.

    It has the methods of cheroot's ConnectionManager. A new connection comes in as long as another
    one waits that can be ended for it: of the same address, or of all.
    """

    can_add_keepalive_connection = True

    def __init__(self, server: Any) -> None:
        self._server, self._listener = server, server.socket
        self._waker, self._wakes = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for sock in (self._listener, self._wakes):
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
        self._open: set[HttpConnection] = set()
        self._waiting: set[HttpConnection] = set()
        self._returned: queue.SimpleQueue[HttpConnection] = queue.SimpleQueue()
        self._is_stopped = False
        self._is_idle = threading.Event()
        self._is_idle.set()

    def run(self, interval_s: float) -> None:
        """Accept, and pass on what clients have sent to, until ``stop``."""
        self._is_idle.clear()
        checked_s = time.monotonic()
        try:
            while not self._is_stopped:
                for key, _ in self._selector.select(interval_s):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._wakes:
                        self._take_back()
                    else:
                        self._pass_on(key.data)
                now_s = time.monotonic()
                if now_s - checked_s >= interval_s:
                    checked_s = now_s
                    for connection in [each for each in self._waiting if each.until_s <= now_s]:
                        self._pass_on(connection)
        finally:
            self._is_idle.set()

    def put(self, connection: HttpConnection) -> None:
        """Hold a connection until its client has sent something; from any thread."""
        self._returned.put(connection)
        self._wake()

    def forget(self, connection: HttpConnection) -> None:
        """A connection is closed; from any thread."""
        self._open.discard(connection)

    def stop(self) -> None:
        self._is_stopped = True
        self._wake()
        self._is_idle.wait()

    def close(self) -> None:
        for connection in [*self._waiting]:
            connection.close()
        self._selector.close()
        self._waker.close()
        self._wakes.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake if the buffer is full
            self._waker.send(b"\0", socket.MSG_DONTWAIT)

    def _take_back(self) -> None:
        self._wakes.recv(PIECE)
        while not self._returned.empty():
            connection = self._returned.get()
            if connection.is_waiting:
                self._hold(connection)
            else:
                self._server.process_conn(connection)

    def _hold(self, connection: HttpConnection) -> None:
        self._waiting.add(connection)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _pass_on(self, connection: HttpConnection) -> None:
        """To a thread; unless it was ended a moment ago."""
        if connection in self._waiting:
            self._take_out(connection)
            self._server.process_conn(connection)

    def _take_out(self, connection: HttpConnection) -> None:
        self._waiting.remove(connection)
        self._selector.unregister(connection.socket)

    def _accept(self) -> None:
        sock = None
        try:
            sock, (address, port, *_) = self._listener.accept()
            tls, environment = self._server.ssl_adapter, {}
            if tls is not None:
                sock, environment = tls.wrap(sock)
            connection = HttpConnection(self._server, sock)
        except OSError as error:
            if sock is not None:
                sock.close()
            elif error.errno in _FULL:
                self._end_oldest(self._waiting)
            return
        connection.remote_addr, connection.remote_port = address, port
        connection.ssl_env = environment
        if not self._has_place(address):
            connection.close()
            return
        self._open.add(connection)
        self._hold(connection)

    def _has_place(self, address: str) -> bool:
        everyone = [*self._open]
        same = [each for each in everyone if each.remote_addr == address]
        for others, most in ((same, self._server.most_of_address), (everyone, self._server.most)):
            if len(others) >= most and not self._end_oldest(others):
                return False
        return True

    def _end_oldest(self, connections: Collection[HttpConnection]) -> bool:
        """End what waits for longest; whether one of them waits. One that is not let in counts."""
        self._server.ended("crowded")
        waiting = self._waiting.intersection(connections)
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.until_s)
        self._take_out(oldest)
        oldest.close()
        return True
