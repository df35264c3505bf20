"""Calls per second over RabbitMQ and Redis, compared with empty endpoints.

The empty endpoints get the same messages from the same client and do nothing: one runs in
oslo.messaging's own server with its defaults, one in ours. Each server is a process; so is the
client.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import fleet, processes
from bench.processes import RabbitServer, RedisServer
from bench.raw_client import RawClient
from bench.table import middle, percentile, ratio, show

REPORTS_AT_ONCE = 1000
RELEASED_AT_ONCE = 5000
"""Below the bound on the ids of one call, which a fast server exceeds in a few seconds."""
START_S = 30.0
WARM_UP_S = 0.5
SELECT, EMPTY = "select_destinations", "empty"


class Case(NamedTuple):
    """Processes that serve a topic together."""

    server: str
    endpoint: str
    processes: int = 1
    cluster_count: int | None = None
    """Over how many clusters the calls go; None: one for each process."""
    keeps_records: bool = True
    """Whether decisions are kept."""

    @property
    def name(self) -> str:
        name = f"{self.server}/{self.endpoint}/{self.processes}"
        name = name if self.cluster_count is None else f"{name}/{self.cluster_count}-clusters"
        return name if self.keeps_records else f"{name}/no-records"

    @property
    def topic(self) -> str:
        return self.name.replace("/", "-")

    @property
    def clusters(self) -> list[str]:
        return [f"{self.topic}-{number}" for number in range(self.cluster_count or self.processes)]


CASES = (
    Case("oslo", EMPTY),
    Case("amqp", EMPTY),
    Case("amqp", SELECT),
    Case("amqp", SELECT, 2),
    Case("amqp", SELECT, keeps_records=False),
)


REFERENCES = {
    "oslo_empty": CASES[0],
    "amqp_empty": CASES[1],
    "one_worker": CASES[2],
    "no_records": CASES[4],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=1000, help="in each cluster")
    parser.add_argument("--outstanding", type=int, default=16, help="calls on their way at a time")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each measurement")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each, in turn")
    parser.add_argument(
        "--slots", type=int, help="of each worker; by default the worker's own default"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="CASE", help="such as amqp/select_destinations/1"
    )
    parser.add_argument("--profile", action="store_true", help="print where the servers' time goes")


def run(arguments: argparse.Namespace) -> list[dict]:
    cases = [each for each in CASES if not arguments.only or each.name in arguments.only]
    found: dict[Case, list[dict]] = {case: [] for case in cases}
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(processes.redis())
        rabbit = stack.enter_context(processes.rabbit())
        running = {
            case: stack.enter_context(serving(case, redis, rabbit, arguments)) for case in cases
        }
        client = RawClient(rabbit.url)
        stack.callback(client.close)
        others = {"client": [os.getpid()], "redis": [redis.pid], "rabbit": [rabbit.pid]}
        for case in cases:
            await_consumers(client, case)
            report(client, case, arguments.hosts)
        for _ in range(arguments.repeat):
            for case in cases:
                pids = {"server": running[case], **others}
                found[case].append(measured(client, case, pids, arguments))
    rows = [middle(rows, "calls_per_s") | _shares(rows, found) for rows in found.values()]
    show("Calls over RabbitMQ and Redis (of each the middle measurement)", rows)
    return rows


def _shares(rows: list[dict], found: dict[Case, list[dict]]) -> dict:
    """The ratio of the calls per second to those of each reference, measured in turn with it."""
    return {
        f"of_{name}": ratio(rows, found[case], "calls_per_s")
        for name, case in REFERENCES.items()
        if case in found
    }


def measured(
    client: RawClient, case: Case, pids: dict[str, list[int]], arguments: argparse.Namespace
) -> dict:
    def used_s() -> dict[str, float]:
        return {name: sum(map(processes.cpu_s, some)) for name, some in pids.items()}

    hints = [{"scheduler_hints": {"cluster": [name]}} for name in case.clusters]
    before = used_s()
    window = client.select(
        case.topic,
        [fleet.plain(size, 2048 * size) | hint for size in (1, 2, 4) for hint in hints],
        outstanding=arguments.outstanding,
        seconds=arguments.seconds,
        warm_up_s=WARM_UP_S,
        check=_is_nothing if case.endpoint == EMPTY else is_selection,
    )
    spent = {name: at_end - before[name] for name, at_end in used_s().items()}
    if case.endpoint == SELECT:
        _release(client, case, window.instances)
    return {
        "server": case.server,
        # A text, so that a comparison with another checkout tells these rows apart.
        "endpoint": case.endpoint if case.keeps_records else f"{case.endpoint}, no records",
        "processes": case.processes,
        "hosts": 0 if case.endpoint == EMPTY else arguments.hosts,
        "outstanding": arguments.outstanding,
        "calls_per_s": len(window.times_s) / arguments.seconds,
        "p50_ms": 1000 * percentile(window.times_s, 0.5),
        "p99_ms": 1000 * percentile(window.times_s, 0.99),
        **{f"{name}_cpu_ms": 1000 * value / len(window.instances) for name, value in spent.items()},
    }


def _release(client: RawClient, case: Case, instances: list[str]) -> None:
    """Give back the reservations, so that the next measurement has the same room."""
    for start in range(0, len(instances), RELEASED_AT_ONCE):
        some = instances[start : start + RELEASED_AT_ONCE]
        client.call(case.topic, "release", own=True, instance_uuids=some)


def _is_nothing(result: Any) -> bool:
    return bool(result == [])


def is_selection(result: Any) -> bool:
    """Whether it is one instance with its host and alternates, as Nova's objects."""
    return len(result) == 1 and result[0][0]["nova_object.name"] == "Selection"


def report(client: RawClient, case: Case, hosts: int) -> None:
    if case.endpoint == EMPTY:
        return
    for cluster in case.clusters:
        reports = list(fleet.reports(hosts, room=100, cluster=cluster))
        for start in range(0, hosts, REPORTS_AT_ONCE):
            some = reports[start : start + REPORTS_AT_ONCE]
            client.call(case.topic, "update_hosts", own=True, hosts=some)


def await_consumers(client: RawClient, case: Case) -> None:
    """Wait for consumers of the topic: a message without a queue would be lost silently."""
    deadline = time.monotonic() + START_S
    while client.listeners(case.topic) < case.processes:
        if time.monotonic() > deadline:
            raise SystemExit(f"no server consumes {case.topic}")
        time.sleep(0.1)


@contextlib.contextmanager
def serving(
    case: Case,
    redis: RedisServer,
    rabbit: RabbitServer,
    arguments: argparse.Namespace,
) -> Iterator[list[int]]:
    """Run the case's processes; yield their pids."""
    script = [sys.executable, str(Path(__file__).with_name("serve.py"))]
    script += ["--profile"] if arguments.profile else []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pids = []
        for number in range(case.processes):
            words = ["empty", case.server, rabbit.url, case.topic]
            if case.endpoint == SELECT:
                file = Path(folder) / f"{number}.conf"
                file.write_text(configuration(case, number, redis.url, rabbit.url, arguments.slots))
                words = ["worker", str(file)]
            pids.append(stack.enter_context(processes.command(*script, *words)))
        yield pids


def configuration(
    case: Case, number: int, redis_url: str, rabbit_url: str, slots: int | None
) -> str:
    return (
        f"[DEFAULT]\ntransport_url = {rabbit_url}\nservice_down_time = 3600\nhost = w{number}\n"
        "log_file = /dev/null\n"
        f"[rpc]\ntopic = {case.topic}\n"
        + (f"slots = {slots}\n" if slots else "")
        + ("" if case.keeps_records else "[decisions]\nenabled = false\n")
        + f"[state]\nurl = {redis_url}\nprefix = {case.topic}\n"
    )
