"""The programs on hosts that workers cast to, as tests run them."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any

from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.transport import Bus


class Agent:
    """Serves the methods of a topic, one call at a time."""

    def __init__(self, bus: Bus, topic: str, host: str, **methods: Callable[..., Any]) -> None:
        endpoint = Endpoint(None, "1.0", methods)
        self._server = bus.server(topic, host, [endpoint], slots=1)
        self._server.start()

    def close(self) -> None:
        self._server.stop(5)


@contextlib.contextmanager
def conductor(bus: Bus) -> Iterator[queue.Queue[dict[str, Any]]]:
    """The answers to casts that name the topic ``conductor``."""
    received: queue.Queue[dict[str, Any]] = queue.Queue()

    def take(_context: object, **answer: Any) -> None:
        received.put(answer)

    with contextlib.closing(Agent(bus, "conductor", "c1", destinations_selected=take)):
        yield received
