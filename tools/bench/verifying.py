"""Verifying answers: what comparing chosen hosts with Nova's database and Placement costs.

Decisions of one worker, fed from MariaDB and claimed in a real Placement, with and without it, in
turn. Installs a Placement; needs the extras ``test``.
"""

import argparse
import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import processes
from bench.claims import SPEC, load
from bench.table import middle, percentile, show
from scheduler_worker.service.requests.scheduler import LifeStage

TRAIT = "CUSTOM_X"
VERIFYING = (LifeStage.BEGIN_VERIFYING, LifeStage.VERIFY)
REQUESTS = {
    "plain": SPEC,
    "with a trait": {
        "flavor": {"vcpus": 1, "memory_mb": 512, "extra_specs": {f"trait:{TRAIT}": "forbidden"}},
        "num_instances": 1,
    },
}
ALTERNATES = 2
_READY_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")


def run(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    with _worker(arguments.hosts) as (worker, pids):
        for clients in arguments.clients:
            for name, spec in REQUESTS.items():
                rows += _compared(worker, pids, name, spec, clients, arguments)
    show("Answers that are verified, beside those that are not; CPU by decision", rows)
    return rows


def _compared(
    worker: Any,
    pids: dict[str, int],
    name: str,
    spec: Mapping[str, Any],
    clients: int,
    arguments: argparse.Namespace,
) -> list[dict]:
    stages = worker.scheduler._stages
    ways: dict[str, list[dict]] = {"no": [], "yes": []}
    for _ in range(arguments.rounds):
        for way, rounds in ways.items():
            worker.scheduler._stages = [
                stage for stage in stages if way == "yes" or stage[0] not in VERIFYING
            ]
            before = {each: processes.family_cpu_s(pid) for each, pid in pids.items()}
            own_s = time.process_time()
            times_s, _ = load(worker.scheduler, clients, arguments.seconds, spec, ALTERNATES)
            own_s = time.process_time() - own_s
            used = {each: processes.family_cpu_s(pid) - before[each] for each, pid in pids.items()}
            rounds.append({
                "own_ms": 1000 * own_s / len(times_s),
                "p50_ms": 1000 * percentile(times_s, 0.5),
                **{f"{each}_ms": 1000 * cpu_s / len(times_s) for each, cpu_s in used.items()},
            })  # fmt: skip
    head = {"clients": clients, "request": name}
    found = []
    for way, rounds in ways.items():
        figures = middle(rounds, "own_ms")
        found.append(head | {"verified": way} | {each: round(n, 3) for each, n in figures.items()})
    return found


@contextlib.contextmanager
def _worker(hosts: int) -> Iterator[tuple[Any, dict[str, int]]]:
    """A worker that knows all hosts, and the processes that it asks."""
    from nova_cloud.installation import default_installation

    from scheduler_worker import conf
    from scheduler_worker.compose.worker import build_worker
    from tests.support.databases import MariaServer
    from tests.support.nova_databases import NovaCloud
    from tests.support.placement_server import Cloud, PlacementServer
    from tests.support.workers import write_config

    python = default_installation().ensure().python
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        directory.chmod(0o711)
        maria = stack.enter_context(MariaServer(directory / "maria"))
        placement = stack.enter_context(
            PlacementServer(directory / "placement", python, maria.create_database())
        )
        nova, providers = NovaCloud(maria), Cloud(placement)
        providers.session.request("PUT", f"/traits/{TRAIT}")
        stack.callback(nova.close)
        for number in range(hosts):
            node = str(uuid.uuid4())
            nova.add_hosts(f"h{number}", uuid=node)
            providers.add(f"h{number}", node, VCPU=10**6, MEMORY_MB=2**30)
        file = write_config(
            directory / "worker.conf",
            DEFAULT={"service_down_time": 3600},
            state={"url": "memory://"},
            nova_feed={"enabled": True},
            nova_claims={"enabled": True},
            api_database={"connection": nova.api_url},
            placement=placement.options(),
        )
        with build_worker(conf.load(["--config-file", str(file)])).running() as worker:
            end_s = time.monotonic() + _READY_S
            while worker.missing() and time.monotonic() < end_s:
                time.sleep(0.1)
            # Its instances never come to Nova, and readings of their hosts would never end.
            if worker.parts.providers is not None:
                worker.parts.providers.stop()
            yield worker, {"database": maria.pid, "placement": placement.pid}
