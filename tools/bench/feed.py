"""The feed from Nova's databases: the first reading, and what it costs while nothing changes."""

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import processes
from bench.table import show
from scheduler_worker.ports import Seen

HEARTBEAT_S = 10.0
CHUNK = 1000
FEATURES = 110
"""Of a CPU, as libvirt reports them: a row has some 4 KB."""


_SEEN: dict[str, Seen] = {}
"""In the worker's process: up to where its records were counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--instances", type=int, default=10, help="on each host")
    parser.add_argument("--seconds", type=float, default=120.0, help="of rest to be measured")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = [_measured(hosts, arguments.instances, arguments.seconds) for hosts in arguments.hosts]
    show("Feed of one worker from MariaDB into Redis; CPU is the worker's own", rows)
    return rows


def _measured(hosts: int, instances: int, seconds: float) -> dict[str, object]:
    with _cloud() as cloud, processes.redis() as redis:
        _fill(cloud, hosts, instances)
        with _beating(cloud), processes.peer(_work, redis.url, cloud.api_url) as worker:
            first = worker.receive()
            worker.send(seconds)
            rest = worker.receive()
    return {
        "hosts": hosts,
        "instances": hosts * instances,
        "first s": round(first["wall_s"], 1),
        "first CPU s": round(first["cpu_s"], 1),
        "at rest % CPU": round(100 * rest["cpu_s"] / rest["wall_s"], 2),
        "records written/min": round(60 * rest["written"] / rest["wall_s"], 2),
    }


# The databases


@contextlib.contextmanager
def _cloud() -> Iterator[Any]:
    """Nova's databases on a private server, gone afterwards."""
    from tests.support.databases import MariaServer
    from tests.support.nova_databases import NovaCloud

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        Path(folder).chmod(0o711)
        with MariaServer(Path(folder) / "maria") as server:
            cloud = NovaCloud(server)
            try:
                yield cloud
            finally:
                cloud.close()


def _fill(cloud: Any, hosts: int, instances: int) -> None:
    from tests.support.nova_databases import now_utc

    names = [f"cmp{number:05d}" for number in range(hosts)]
    features = [f"feature{number}" for number in range(FEATURES)]
    cpu_info = json.dumps({"arch": "x86_64", "model": "Cascadelake-Server", "features": features})
    for at in range(0, hosts, CHUNK):
        some = names[at : at + CHUNK]
        cloud.add_hosts(*some, cpu_info=cpu_info, updated_at=now_utc(3600))
        cloud.boot_many([host for host in some for _ in range(instances)])
    aggregates = max(1, hosts // 100)
    for number in range(aggregates):
        cloud.aggregate(number + 1, names[number::aggregates], availability_zone=f"z{number % 3}")


@contextlib.contextmanager
def _beating(cloud: Any) -> Iterator[None]:
    """Inside, all services have heartbeats."""
    stopping = threading.Event()
    cloud.beat()

    def beat() -> None:
        while not stopping.wait(HEARTBEAT_S):
            cloud.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


# The worker


def _work(pipe: Any, state_url: str, api_url: str) -> None:
    """Runs a worker; sends the cost of its first reading, and then of the rest it is asked for."""
    from scheduler_worker import conf
    from scheduler_worker.compose.worker import build_worker

    config = conf.load([])
    config.set_override("url", state_url, group="state")
    config.set_override("enabled", True, group="nova_feed")
    config.set_override("connection", api_url, group="api_database")
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    with build_worker(config).running() as worker:
        while worker.missing():
            time.sleep(0.1)
        pipe.send({
            "wall_s": time.monotonic() - began_s, "cpu_s": time.process_time() - began_cpu_s,
        })  # fmt: skip
        while (seconds := pipe.recv()) is not None:
            _records(worker)
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            time.sleep(seconds)
            pipe.send({
                "wall_s": time.monotonic() - began_s, "cpu_s": time.process_time() - began_cpu_s,
                "written": _records(worker),
            })  # fmt: skip


def _records(worker: Any) -> int:
    """How many records of clusters were written since the last call."""
    worker.fleet.refresh_globals()
    written = 0
    for replica in worker.fleet.clusters():
        changes = worker.state.changes(replica.scope, _SEEN.get(replica.scope, Seen()))
        _SEEN[replica.scope] = Seen(changes.epoch, changes.version)
        written += len(changes.entries)
    return written
