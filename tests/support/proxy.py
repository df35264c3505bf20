"""A TCP proxy that a test can stall, cut and close, as networks do."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal, Self

from tests.support.servers import LOOPBACK

Direction = Literal["to_server", "to_client"]
_CHUNK = 2**16


class Proxy:
    """Forwards connections to ``port`` to another port of the loopback."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._flows: dict[Direction, threading.Event] = {
            "to_server": threading.Event(),
            "to_client": threading.Event(),
        }
        for each in self._flows.values():
            each.set()
        self._refuses = threading.Event()
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @contextlib.contextmanager
    def stalled(self, *directions: Direction) -> Iterator[None]:
        """Inside, nothing is forwarded in these directions; the connections stay open."""
        for each in directions:
            self._flows[each].clear()
        try:
            yield
        finally:
            for each in directions:
                self._flows[each].set()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Inside, all connections are cut, new ones too."""
        self._refuses.set()
        self.cut()
        try:
            yield
        finally:
            self._refuses.clear()

    def cut(self) -> None:
        """Close all connections; new ones are accepted."""
        with self._guard:
            cut, self._open = self._open, set()
        for each in cut:
            _end(each)

    def close(self) -> None:
        """Close all connections and stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self._listener.close()
        for each in self._flows.values():
            each.set()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._server_port))
            except OSError:
                client.close()
                continue
            with self._guard:
                self._open |= {client, server}
            if self._refuses.is_set():
                self.cut()
                continue
            for source, sink, way in ((client, server, "to_server"), (server, client, "to_client")):
                threading.Thread(
                    target=self._pump,
                    args=(source, sink, self._flows[way]),
                    name=f"proxy-{way}",
                    daemon=True,
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, flows: threading.Event) -> None:
        try:
            while data := source.recv(_CHUNK):
                flows.wait()
                sink.sendall(data)
        except OSError:
            pass  # cut
        flows.wait()  # while stalled, the end is not forwarded either
        with self._guard:
            self._open -= {source, sink}
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes the other thread's recv
    connection.close()
