"""Boots decided and claimed in a second, beside nova-scheduler on the same cloud and databases.

MariaDB, RabbitMQ and Placement as tools/nova_cloud runs them; no computes: their rows are written
by SQL. Clients call select_destinations as conductors do. Installs Nova; needs the extras "test".
"""

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import processes
from bench.table import percentile, show

if TYPE_CHECKING:
    from nova_cloud.cloud import Cloud

    from bench.boots import Conductors
    from bench.nova_rows import Rows
    from tests.support.servers import Server

WARM_UP = 2
"""Calls before each measurement."""
STEPS = ("lock_wait_s", "hold_s", "claim_s", "duration_s")
"""Fields of the journal's lines that say where a request's time goes."""

PATIENT = {"DEFAULT": {"service_down_time": 3600}}
"""For both: nova-scheduler reads the services when it begins with a request, and with 16 of 1,000
hosts at a time it comes to filter them when by its default, 60 s, they all would be down."""


class Way(NamedTuple):
    """A scheduler, and the worker's options."""

    name: str
    scheduler: str
    options: Mapping[str, Any] = {}


NOVA = "nova-scheduler"
WAYS = (
    Way(NOVA, "nova"),
    Way("ours", "ours"),
    Way("ours, no claims", "ours", {"nova_claims": {"enabled": False}}),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="hosts")
    parser.add_argument("--clients", type=int, default=16, help="conductors' calls at a time")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each measurement")
    parser.add_argument(
        "--at-most", type=float, default=300.0, metavar="SECONDS",
        help="until every client has had an answer",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> list[dict]:
    from nova_cloud.errors import CloudFailed, NotInstalled

    found: list[dict] = []
    try:
        with _cloud() as cloud, _rows(cloud) as rows:
            for size in sorted(arguments.sizes):
                rows.grow(size)
                some = [_measured(cloud, rows, way, arguments) for way in WAYS]
                found += _show(size, arguments.clients, some)
    except (CloudFailed, NotInstalled) as error:
        raise SystemExit(str(error)) from None
    return found


@contextlib.contextmanager
def _cloud() -> Iterator["Cloud"]:
    from nova_cloud.cloud import Cloud
    from nova_cloud.fleet import Fleet
    from nova_cloud.installation import default_installation

    with tempfile.TemporaryDirectory(prefix="bench-nova-") as folder:
        cloud = Cloud(Path(folder), default_installation(), Fleet(computes=0), PATIENT)
        cloud.prepare()
        try:
            yield cloud
        finally:
            cloud.down()


@contextlib.contextmanager
def _rows(cloud: "Cloud") -> Iterator["Rows"]:
    from bench.nova_rows import Rows

    with contextlib.closing(Rows(cloud)) as rows, rows.beating():
        yield rows


def _measured(
    cloud: "Cloud", rows: "Rows", way: Way, arguments: argparse.Namespace
) -> dict[str, Any]:
    from bench.boots import Conductors

    conductors = Conductors(cloud.broker.url, arguments.clients)
    with contextlib.closing(conductors), _serving(cloud, way):
        _warm_up(conductors, way)
        journal = _journal(cloud) if way.scheduler == "ours" else None
        before = _cpu_s(cloud)
        load = conductors.measure(arguments.seconds, arguments.at_most)
        used = {name: now_s - before[name] for name, now_s in _cpu_s(cloud).items()}
        steps = journal() if journal else {}
    rows.forget_claims()
    return {"way": way.name, "load": load, "cpu_s": used, "steps": steps}


@contextlib.contextmanager
def _serving(cloud: "Cloud", way: Way) -> Iterator[None]:
    """One scheduler, which knows nothing of those before."""
    try:
        cloud.schedule_with(way.scheduler, options=way.options)
        yield
    finally:
        for each in (cloud.nova_scheduler, *cloud.workers):
            each.kill()  # what is under way is abandoned
        _forget(cloud)


def _forget(cloud: "Cloud") -> None:
    """No reservations, and no calls that nobody waits for."""
    import amqp
    import redis

    if cloud.redis.is_running:
        with contextlib.closing(redis.Redis.from_url(cloud.redis.url)) as state:
            state.flushall()
    address = f"127.0.0.1:{cloud.broker.port}"
    with amqp.Connection(address, "guest", "guest") as link, contextlib.suppress(amqp.NotFound):
        link.channel().queue_purge("scheduler")


def _warm_up(conductors: "Conductors", way: Way) -> None:
    for _ in range(WARM_UP):
        error = conductors.ask()
        if error:
            raise SystemExit(f"{way.name} refused a request: {error}")


def _cpu_s(cloud: "Cloud") -> dict[str, float]:
    """Seconds of CPU so far, of all processes of each kind."""
    kinds: dict[str, list[Server]] = {
        "scheduler": [cloud.nova_scheduler, *cloud.workers],
        "Placement": [cloud.placement_service],
        "MariaDB": [cloud.database],
        "RabbitMQ": [cloud.broker],
        "Redis": [cloud.redis],
    }
    return {
        name: sum(processes.family_cpu_s(each.pid) for each in some if each.is_running)
        for name, some in kinds.items()
    }


def _journal(cloud: "Cloud") -> Callable[[], dict[str, float]]:
    """The means of the journal's lines from now on, in ms."""
    [worker] = cloud.workers
    begin = worker.log.stat().st_size

    def read() -> dict[str, float]:
        with worker.log.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").splitlines()
        found = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        decided = [each for each in found if each.get("result") == "placed"]
        return {
            step.removesuffix("_s"): 1000
            * sum(float(each.get(step, 0)) for each in decided)
            / max(1, len(decided))
            for step in STEPS
        }

    return read


def _show(size: int, clients: int, found: list[dict[str, Any]]) -> list[dict]:
    rates = {each["way"]: len(each["load"].times_s) / each["load"].seconds for each in found}
    rows = [
        {
            "hosts": size,
            "scheduler": each["way"],
            "answers": len(each["load"].times_s),
            "failed": len(each["load"].errors),
            "requests_per_s": rates[each["way"]],
            "ratio": rates[each["way"]] / rates[NOVA] if rates[NOVA] else None,
            "p50_s": _share(each["load"].times_s, 0.5),
            "p95_s": _share(each["load"].times_s, 0.95),
            **{
                f"{kind} ms": 1000 * used / max(1, len(each["load"].times_s))
                for kind, used in each["cpu_s"].items()
            },
        }
        for each in found
    ]
    show(f"Boots of {clients} clients in a cloud of {size} hosts; CPU ms of each", rows)
    errors = {f"{each['way']}: {error}" for each in found for error in each["load"].errors}
    for error in sorted(errors)[:5]:
        print(f"  {error}")
    steps = [{"scheduler": each["way"], **each["steps"]} for each in found if each["steps"]]
    if steps:
        show("Where a request's time goes, ms in the mean (of the journal)", steps)
    return [
        row | ({"steps_ms": each["steps"]} if each["steps"] else {})
        for row, each in zip(rows, found, strict=True)
    ]


def _share(times_s: list[float], share: float) -> float | None:
    return percentile(times_s, share) if times_s else None
