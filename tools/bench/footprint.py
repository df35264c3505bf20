"""Redis memory for each host, instance, reservation and tombstone, in bytes."""

import argparse
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import redis

from bench import fleet, processes
from bench.table import show

CHUNK = 500
INSTANCES = 10
TOMBSTONES = 20_000
"""As many as a scope keeps."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=5000)
    parser.add_argument("--reservations", type=int, default=5000)


def run(arguments: argparse.Namespace) -> list[dict]:
    with processes.redis() as server, redis.Redis.from_url(server.url) as client:
        rows = list(_measured(server.url, client, arguments.hosts, arguments.reservations))
    show("Memory of Redis (used_memory; resident memory is up to twice as much)", rows)
    return rows


def _measured(
    url: str, client: redis.Redis, hosts: int, reservations: int
) -> Iterator[dict[str, object]]:
    from scheduler_worker import conf
    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.compose.worker import build_worker

    config = conf.load([])
    config.set_override("url", url, group="state")
    config.set_override("service_down_time", 86_400)
    reports = list(fleet.reports(hosts, room=100))
    names = [report["host"] for report in reports]
    with build_worker(config).running() as worker, SchedulerClient(worker.bus) as scheduler:
        scheduler.update_hosts(reports[:1])

        def grown(what: str, count: int, lasts: str, begun: int) -> dict[str, object]:
            return {"what": what, "bytes": round((_used(client) - begun) / count), "lasts": lasts}

        def memo(what: str, lasts: str) -> dict[str, object]:
            memos, with_them = len(client.keys("*:memo:*")), _used(client)
            size = (with_them - _used(client, without_memos=True)) // memos
            return {"what": f"memo of a {what}", "bytes": size, "lasts": lasts}

        begun = _used(client, without_memos=True)
        _report(scheduler, reports)
        yield memo("report", "1 min")
        yield grown("host", hosts, "while it is there", begun)

        for what, some in (("listed by uuid", list), ("as Nova describes it", _described)):
            begun = _used(client)
            uuids = [[str(uuid.uuid4()) for _ in range(INSTANCES)] for _ in names]
            listed = [
                {"host": name, "instances": some(each)}
                for name, each in zip(names, uuids, strict=True)
            ]
            _report(scheduler, listed)
            _used(client, without_memos=True)
            yield grown(f"instance, {what}", hosts * INSTANCES, "while it is there", begun)
            _report(scheduler, [{"host": name, "instances": []} for name in names])
            _used(client, without_memos=True)

        begun = _used(client)
        spec = fleet.plain() | {"project_id": uuid.uuid4().hex}
        for _ in range(reservations):
            scheduler.select_destinations(spec, [str(uuid.uuid4())], return_alternates=True)
        yield _records(worker, client)
        with_memos, memos = _used(client), len(client.keys("*:memo:*"))
        clean = _used(client, without_memos=True)
        yield grown("consume", reservations, "until it ends", begun)
        yield {
            "what": "memo of a commit",
            "bytes": (with_memos - clean) // memos,
            "lasts": "10 min",
        }

        yield _tombstones(url, client)


def _records(worker: Any, client: redis.Redis) -> dict[str, object]:
    """What the records of the decisions took; removes them."""
    worker.parts.recorder.write()
    keys = client.keys("*:decisions*")
    records, with_them = client.xlen(min(keys, key=len)), _used(client)
    client.delete(*keys)
    size = round((with_them - _used(client)) / records)
    return {"what": "record of a decision", "bytes": size, "lasts": "[decisions] max_age"}


def _tombstones(url: str, client: redis.Redis) -> dict[str, object]:
    from scheduler_worker.backends.redis.engine import RedisState
    from scheduler_worker.ports import Put, Transaction

    state = RedisState(url, hold_timeout_s=60.0)
    state.write("gone", [Transaction([])])
    begun = _used(client, without_memos=True)
    keys = [f"p:{uuid.uuid4()}@{uuid.uuid4()}" for _ in range(TOMBSTONES)]
    for value in (b"", None):
        for at in range(0, TOMBSTONES, CHUNK):
            puts = [Put(key, value, time.time() + 600) for key in keys[at : at + CHUNK]]
            state.write("gone", [Transaction(puts)])
    left = _used(client, without_memos=True) - begun
    state.close()
    return {
        "what": "tombstones",
        "bytes": round(left / TOMBSTONES),
        "lasts": f"the last {TOMBSTONES} of a cluster",
    }


def _described(uuids: Sequence[str]) -> list[dict[str, Any]]:
    facts: dict[str, Any] = {"vcpus": 2, "memory_mb": 4096, "root_gb": 20, "ephemeral_gb": 0}
    facts |= {"instance_type_id": 5, "vm_state": "active", "project_id": uuid.uuid4().hex}
    return [{"uuid": each, **facts} for each in uuids]


def _report(scheduler: Any, reports: Sequence[dict]) -> None:
    for at in range(0, len(reports), CHUNK):
        scheduler.update_hosts(reports[at : at + CHUNK])


def _used(client: redis.Redis, *, without_memos: bool = False) -> int:
    if without_memos and (memos := client.keys("*:memo:*")):
        client.delete(*memos)
    return int(client.info("memory")["used_memory"])
