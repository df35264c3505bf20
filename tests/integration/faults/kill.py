"""A worker is killed among a hundred casts, and another one goes on: what is lost?

    python -m tests.integration.faults.kill

prints it for both servers of ``[rpc] server``. It starts a RabbitMQ and a Redis of its own.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from pathlib import Path

import msgspec

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.contract import Endpoint
from scheduler_worker.rpc.transport import Bus
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.scheduling.options import ALL_FILTERS
from tests.integration.faults.books import Books, Snapshot
from tests.integration.faults.tenants import SPEC, Mailbox
from tests.support.servers import RabbitServer, RedisServer
from tests.support.services import host
from tests.support.workers import WorkerProcess, write_config

CASTS, SLOTS, KILLED_AFTER = 100, 4, 25
QUIET_S = 3.0
"""So long without an answer, when what was cast last is answered: no more will come."""
LONGEST_S = 60.0
KINDS = ("amqp", "oslo")


class Toll(msgspec.Struct):
    """What became of the casts."""

    server: str
    cast: int
    answered: int
    lost: int
    answered_again: int
    """Answers beyond the first: late acknowledgement makes them normal."""
    contradicted: int
    """Casts whose answers named different hosts."""
    promised: int
    """Instances with a promise in Redis; each with one."""
    over_promised: list[str]


class _Casts:
    """A hundred casts, their answers, and what they left in the store."""

    def __init__(self, bus: Bus, prefix: str, redis_url: str) -> None:
        self.mailbox = Mailbox()
        self._books = Books(redis_url, prefix, ["default"])
        self._client = SchedulerClient(bus, timeout_s=20.0)
        endpoint = Endpoint(None, "1.0", {"destinations_selected": self.mailbox.take})
        self._answers = bus.server("tenants", "kill", [endpoint], translate=to_wire)
        self._answers.start()
        self.ids: list[str] = []

    def begin(self) -> None:
        self._client.update_hosts([host(f"h{number}", vcpus=CASTS) for number in range(4)])
        self.ids = [self.cast() for _ in range(CASTS)]

    def cast(self) -> str:
        return self._client.request_destinations(
            SPEC, [str(uuid.uuid4())], reply_to={"topic": "tenants"}
        )

    def until_no_more_comes(self) -> None:
        """Until all are answered, and what was cast after them; or nothing comes any more."""
        last = self.cast()
        assert self.mailbox.wait_for(last, LONGEST_S), "the second worker does not serve"
        while self.lost():
            before = self.mailbox.total
            if not self.mailbox.wait_for_total(before + 1, QUIET_S):
                return

    def lost(self) -> list[str]:
        return [each for each in self.ids if not self.mailbox.count(each)]

    def look(self) -> Snapshot:
        return self._books.look()

    def close(self) -> None:
        self._answers.stop(1.0)
        self._books.close()


def run(kind: str, directory: Path, rabbit_url: str, redis_url: str) -> Toll:
    """Do it with one kind of server, on an empty virtual host."""
    prefix = f"kill-{uuid.uuid4().hex}"

    def worker(name: str) -> WorkerProcess:
        config = write_config(
            directory / f"{kind}-{name}.conf",
            DEFAULT={"transport_url": rabbit_url, "host": name, "service_down_time": 600},
            rpc={"server": kind, "slots": SLOTS},
            state={"url": redis_url, "prefix": prefix},
            cluster_lock={"hold_timeout": 1.0, "max_batch": 16},  # the dead one held the lock
            filter_scheduler={
                "available_filters": [ALL_FILTERS, "tests.integration.faults.filters.SlowFilter"],
                "enabled_filters": "ComputeFilter,CoreFilter,SlowFilter",
            },
        )
        return WorkerProcess(config, name=f"{kind}-{name}")

    with worker("one") as one, Bus(conf.load(), url=rabbit_url) as bus:
        casts = _Casts(bus, prefix, redis_url)
        one.ready()
        casts.begin()
        assert casts.mailbox.wait_for_total(KILLED_AFTER, LONGEST_S)
        one.kill()
        with worker("two") as two:
            two.ready()
            casts.until_no_more_comes()
            toll = _toll(kind, casts)
        casts.close()
    return toll


def _toll(kind: str, casts: _Casts) -> Toll:
    counts = [casts.mailbox.count(each) for each in casts.ids]
    snapshot = casts.look()
    return Toll(
        server=kind,
        cast=len(counts),
        answered=len(counts) - len(casts.lost()),
        lost=len(casts.lost()),
        answered_again=sum(max(0, count - 1) for count in counts),
        contradicted=sum(len(casts.mailbox.hosts(each)) > 1 for each in casts.ids),
        promised=len({each["instance_uuid"] for each in snapshot.promises}) - 1,  # the last one
        over_promised=sorted(snapshot.violations()),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with (
            RabbitServer(directory / "rabbit") as rabbit,
            RedisServer(directory / "redis") as redis,
        ):
            for kind in KINDS:
                toll = run(kind, directory, rabbit.add_vhost(kind), redis.url)
                print(json.dumps(msgspec.to_builtins(toll)))


if __name__ == "__main__":
    main()
