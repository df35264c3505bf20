"""The programs on hosts that workers cast to, as tests run them, and workers for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.client import SchedulerClient
from scheduler_worker.ports import Seen
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.service.state.replica import Replica
from tests.support.workers import WorkerProcess, write_config

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
    folder: Path, transport_url: str, redis_url: str, **groups: Mapping[str, Any]
) -> Iterator[dict[str, WorkerProcess]]:
    """Two workers that are ready, by name; ``groups`` are further options of both."""
    with contextlib.ExitStack() as opened:
        found = {}
        for name in ("w1", "w2"):
            config = write_config(
                folder / f"{name}.conf",
                DEFAULT={"transport_url": transport_url, "host": name},
                state={"url": redis_url},
                **groups,
            )
            found[name] = opened.enter_context(WorkerProcess(config, name=name))
        for each in found.values():
            each.ready()
        yield found


def read(redis_url: str, records: AnyReplica) -> AnyReplica:
    """Bring a replica up to date with the state."""
    state = RedisState(redis_url, clock=SystemClock(), hold_timeout_s=2.0)
    try:
        records.apply(state.changes(records.scope, Seen()))
    finally:
        state.close()
    return records
