"""The programs on hosts that workers cast to, as tests run them."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any

from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.ports import Seen
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.service.state import records


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


def reserved_in_redis(redis_url: str) -> dict[str, str]:
    """Instance -> the host that is reserved for it in the default cluster, once."""
    with contextlib.closing(RedisState(redis_url, hold_timeout_s=2.0)) as state:
        entries = state.changes("default", Seen()).entries
    reservations = [
        records.read_reservation(each.value)
        for each in entries
        if each.key.startswith(records.RESERVATION) and each.value is not None
    ]
    found = {each.instance_uuid: each.host for each in reservations}
    assert len(found) == len(reservations)
    return found
