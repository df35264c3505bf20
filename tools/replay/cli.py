"""The command line of the replay."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from replay.balance import cli as balance
from replay.check import overbooked, reservations
from replay.driver import Client, Driver, Settings
from replay.progress import Progress
from replay.streams import Stream, azure_packing, fleet, openb
from replay.summary import as_lines, as_plain
from scheduler_worker.errors import SchedulerWorkerError

EMBEDDED = "local:"
SHIPPED_FLEET = Path(__file__).resolve().parents[2] / "examples" / "fleet"
DEMO_REQUESTS = 5_000
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """All options."""
    options = argparse.ArgumentParser(
        prog="tools/replay",
        description="Replay a stream of requests against a worker and check its reservations. "
        "Exit status: 0, or 1 when a host is overbooked or a request met an error.",
        epilog="`tools/replay balance --help`: compare balances in a simulated day.",
    )
    source = options.add_mutually_exclusive_group()
    source.add_argument("--fleet", type=Path, metavar="DIR", help="a directory by tools/generate")
    source.add_argument(
        "--openb", type=Path, nargs=2, metavar=("NODES", "PODS"), help="two openb CSV files"
    )
    source.add_argument(
        "--azure-packing", type=Path, metavar="FILE", help="the packing trace's SQLite file"
    )
    source.add_argument(
        "--demo", action="store_true", help=f"{DEMO_REQUESTS:,} requests of examples/fleet"
    )
    options.add_argument(
        "--url", default=EMBEDDED, help=f"transport URL; {EMBEDDED!r} starts a worker in here"
    )
    options.add_argument("--topic", default="scheduler")
    options.add_argument("--exchange", default="nova")
    options.add_argument(
        "--config-file", action="append", default=[], help="for the worker that is started in here"
    )
    options.add_argument("--limit", type=int, help="take only the first N requests")
    options.add_argument("--clients", type=int, default=4, help="concurrent callers (4)")
    options.add_argument(
        "--speed", type=float, default=0.0, help="stream seconds a second (0: as fast as possible)"
    )
    options.add_argument(
        "--batch", type=int, default=400, help="changes after which changed hosts report (400)"
    )
    options.add_argument("--hosts", type=int, default=1000, help="of --azure-packing (1000)")
    options.add_argument("--seed", type=int, default=0, help="for uuids that a trace lacks (0)")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the outcome there, too")
    return options


def read_stream(parsed: argparse.Namespace) -> Stream:
    """The stream that the options name; the shipped fleet by default."""
    limit = parsed.limit
    if parsed.openb:
        nodes, pods = parsed.openb
        return openb.read(nodes, pods, limit, parsed.seed)
    if parsed.azure_packing:
        return azure_packing.read(parsed.azure_packing, limit, parsed.seed, parsed.hosts)
    if parsed.demo and limit is None:
        limit = DEMO_REQUESTS
    return fleet.read(parsed.fleet or SHIPPED_FLEET, limit)


@contextmanager
def connected(parsed: argparse.Namespace) -> Iterator[Client]:
    """A client of the worker at ``--url``, or of one that lives as long as the context."""
    from scheduler_worker.client import SchedulerClient

    if parsed.url.rstrip("/") != EMBEDDED:
        with SchedulerClient.connect(
            parsed.url, topic=parsed.topic, exchange=parsed.exchange
        ) as client:
            yield client
        return
    from scheduler_worker import conf
    from scheduler_worker.compose.worker import build_worker

    arguments = [part for path in parsed.config_file for part in ("--config-file", path)]
    with build_worker(conf.load(arguments)).running() as worker:
        yield SchedulerClient(worker.bus, topic=worker.settings.rpc.topic)


def replay(client: Client, stream: Stream, settings: Settings, json_path: Path | None) -> int:
    """Drive, show, check; the exit status."""
    progress = Progress(sys.stderr)
    driver = Driver(client, stream, settings)
    try:
        outcome = driver.run(progress)
    finally:
        progress.close()
    live = reservations(client)
    problems = overbooked(client, driver.books)
    print("\n".join(as_lines(outcome, driver.books, len(live), problems)))
    if json_path:
        found = as_plain(outcome, driver.books, len(live), problems)
        json_path.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if problems or outcome.failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the replay that the arguments describe, or the comparison of balances."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["balance"]:
        return balance.main(argv[1:])
    options = parser()
    parsed = options.parse_args(argv)
    try:
        stream = read_stream(parsed)
    except OSError as error:
        options.error(str(error))
    settings = Settings(clients=parsed.clients, batch=parsed.batch, speed=parsed.speed)
    print(f"{len(stream.hosts):,} hosts, {stream.length:,} requests", file=sys.stderr)
    try:
        with connected(parsed) as client:
            return replay(client, stream, settings, parsed.json)
    except SchedulerWorkerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
