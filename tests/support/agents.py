"""The programs on hosts that workers cast to, as tests run them, and workers for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.client import SchedulerClient
from scheduler_worker.ports import Seen
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import Replica
from tests.support.workers import WorkerProcess

AnyReplica = TypeVar("AnyReplica", bound=Replica)


class Agent:
    """Serves the methods of a topic, one call at a time, and calls the workers."""

    def __init__(self, bus: Bus, topic: str, host: str, **methods: Callable[..., Any]) -> None:
        self.client = SchedulerClient(bus)
        endpoint = Endpoint(None, "1.0", methods)
        self._server = bus.server(topic, host, [endpoint], translate=to_wire, slots=1)
        self._server.start()

    def close(self) -> None:
        self._server.stop(5)


@contextlib.contextmanager
def two_workers(
    configure: Callable[..., Path], **groups: Mapping[str, Any]
) -> Iterator[dict[str, WorkerProcess]]:
    """Two workers that are ready, by name; ``groups`` are further options of both."""
    with contextlib.ExitStack() as opened:
        found = {
            name: opened.enter_context(WorkerProcess(configure(name, **groups), name=name))
            for name in ("w1", "w2")
        }
        for each in found.values():
            each.ready()
        yield found


def read(redis_url: str, replica: AnyReplica) -> AnyReplica:
    """Bring a replica up to date with the state."""
    with contextlib.closing(RedisState(redis_url, hold_timeout_s=2.0)) as state:
        replica.apply(state.changes(replica.scope, Seen()))
    return replica


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
