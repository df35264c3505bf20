"""Kills a worker among a hundred casts, lets another one go on, and counts the losses.

    python -m tests.integration.faults.kill

prints them. It starts a private RabbitMQ and Redis.
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
from tests.integration.faults import filters
from tests.integration.faults.books import Books, Snapshot
from tests.integration.faults.filters import HALTS_AFTER
from tests.integration.faults.tenants import SPEC, Mailbox
from tests.support.patience import SOON_S
from tests.support.servers import RabbitServer, RedisServer
from tests.support.services import host
from tests.support.workers import WorkerProcess, write_config

CASTS, SLOTS = 100, 4
KILLED_AFTER = HALTS_AFTER - SLOTS + 1
"""As many answers arrive for sure; the worker halts in the middle of a group commit."""
QUIET_S = 3.0
"""After this time without an answer, once the last cast is answered, no more arrive."""
LONGEST_S = SOON_S


class Toll(msgspec.Struct):
    """The results of the casts."""

    cast: int
    answered: int
    lost: int
    answered_again: int
    """Answers beyond the first: late acknowledgement makes them normal."""
    contradicted: int
    """Casts with answers that name different hosts."""
    reserved: int
    """Instances with a reservation in Redis; each has one."""
    violations: list[str]


class _Casts:
    """A hundred casts, their answers, and their records in the store."""

    def __init__(self, bus: Bus, prefix: str, redis_url: str) -> None:
        self.mailbox = Mailbox()
        self._books = Books(redis_url, prefix, ["default"])
        self._client = SchedulerClient(bus, timeout_s=SOON_S)
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
        """Wait until all are answered, and those cast after them; or no more answers arrive."""
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


def run(directory: Path, rabbit_url: str, redis_url: str) -> Toll:
    """Do it on an empty virtual host."""
    prefix = f"kill-{uuid.uuid4().hex}"

    def worker(name: str, unit: str = "ComputeFilter") -> WorkerProcess:
        config = write_config(
            directory / f"{name}.conf",
            DEFAULT={"transport_url": rabbit_url, "host": name, "service_down_time": 600},
            rpc={"slots": SLOTS},
            state={"url": redis_url, "prefix": prefix},
            cluster_lock={"hold_timeout": 1.0, "max_batch": 16},  # the dead one held the lock
            filter_scheduler={
                "available_filters": [ALL_FILTERS, f"{filters.__name__}.HaltingFilter"],
                "enabled_filters": f"CoreFilter,{unit}",
            },
        )
        return WorkerProcess(config, name=name)

    with worker("one", "HaltingFilter") as one, Bus(conf.load(), url=rabbit_url) as bus:
        casts = _Casts(bus, prefix, redis_url)
        one.ready()
        casts.begin()
        assert casts.mailbox.wait_for_total(KILLED_AFTER, LONGEST_S)
        one.kill()
        with worker("two") as two:
            two.ready()
            casts.until_no_more_comes()
            toll = _toll(casts)
        casts.close()
    return toll


def _toll(casts: _Casts) -> Toll:
    counts = [casts.mailbox.count(each) for each in casts.ids]
    snapshot = casts.look()
    return Toll(
        cast=len(counts),
        answered=len(counts) - len(casts.lost()),
        lost=len(casts.lost()),
        answered_again=sum(max(0, count - 1) for count in counts),
        contradicted=sum(len(casts.mailbox.hosts(each)) > 1 for each in casts.ids),
        reserved=len({each["instance_uuid"] for each in snapshot.reservations}) - 1,  # the last one
        violations=sorted(snapshot.violations()),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with (
            RabbitServer(directory / "rabbit") as rabbit,
            RedisServer(directory / "redis") as redis,
        ):
            toll = run(directory, rabbit.new_vhost(), redis.url)
            print(json.dumps(msgspec.to_builtins(toll)))


if __name__ == "__main__":
    main()
