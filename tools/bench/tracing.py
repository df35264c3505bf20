"""What one request passes: files, functions, calls of ours, and borders of packages.

A steady ``select_destinations`` over RabbitMQ and Redis, one call at a time. Every call of a
function is counted in two runs of one worker, the second with more requests: the difference is
what the requests add. What happens less than once in two requests is left out.
"""

import argparse
import contextlib
import inspect
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench import fleet, processes, rpc
from bench.raw_client import RawClient
from bench.table import show

ROOT = Path(__file__).resolve().parents[2]
OURS = str(ROOT / "scheduler_worker")
_WARM_UP = 50
_EACH_REQUEST = 0.5
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_BEGUN = 6
"""The highest offset of the instruction with which a generator begins."""
_UNNAMED = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
"""Frames that later versions of Python no longer have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--outstanding", type=int, default=1, help="calls on their way at a time")
    parser.add_argument("--list", action="store_true", help="name the files, and their functions")


def run(arguments: argparse.Namespace) -> list[dict]:
    few, many = (_counts(arguments, n * arguments.requests) for n in (1, 2))
    counted = {
        kind: {
            name: (count - few[kind].get(name, 0)) / arguments.requests
            for name, count in counts.items()
        }
        for kind, counts in many.items()
    }
    calls = {name: n for name, n in counted["calls"].items() if n >= _EACH_REQUEST}
    files = sorted({name.partition(":")[0] for name in calls})
    row = {
        "hosts": arguments.hosts,
        "files": len(files),
        "functions": len(calls),
        "calls": sum(calls.values()),
        "borders": sum(n for n in counted["borders"].values() if n >= _EACH_REQUEST),
        "calls_of_all_code": sum(counted["all"].values()),
    }
    show("What one select_destinations passes", [row])
    if arguments.list:
        for file in files:
            print(f"\n{file}")
            inside = {k.partition(":")[2]: n for k, n in calls.items() if k.startswith(f"{file}:")}
            for name, count in sorted(inside.items(), key=lambda item: -item[1]):
                print(f"  {count:6.1f}  {name}")
    return [row]


def _counts(arguments: argparse.Namespace, requests: int) -> dict[str, dict[str, int]]:
    """What a worker called until it was stopped, after so many requests."""
    case = rpc.Case("amqp", rpc.SELECT)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        redis = stack.enter_context(processes.redis())
        rabbit = stack.enter_context(processes.rabbit())
        figures, file = Path(folder) / "counts.json", Path(folder) / "worker.conf"
        file.write_text(rpc.configuration(case, 0, redis.url, rabbit.url, None))
        serve = [sys.executable, str(Path(__file__).with_name("serve.py"))]
        with processes.command(*serve, "--count", str(figures), "worker", str(file)):
            client = RawClient(rabbit.url)
            rpc.await_consumers(client, case)
            rpc.report(client, case, arguments.hosts)
            hint = {"scheduler_hints": {"cluster": case.clusters}}
            client.select(
                case.topic,
                [fleet.plain(1, 2048) | hint],
                outstanding=arguments.outstanding,
                calls=_WARM_UP + requests,
                check=rpc.is_selection,
            )
            client.close()
        return json.loads(figures.read_text())


@contextlib.contextmanager
def counted(path: Path | None) -> Iterator[None]:
    """Count the calls of the threads that are started inside, and write the counts there."""
    if path is None:
        yield
        return
    calls, borders, everything = Counter[CodeType](), Counter[tuple[str, str]](), Counter[str]()

    def count(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in _UNNAMED or _is_resumed(frame):
            return
        everything["python"] += 1
        if ours := _package(code):
            calls[code] += 1
            theirs = _package_of_caller(frame)
            if theirs and ours != theirs:
                borders[theirs, ours] += 1

    threading.setprofile(count)
    try:
        yield
    finally:
        threading.setprofile(None)
        named = Counter[str]()
        for code, number in list(calls.items()):
            file = str(Path(code.co_filename).relative_to(ROOT))
            named[f"{file}:{code.co_qualname}"] += number
        found = {" ".join(pair): number for pair, number in list(borders.items())}
        path.write_text(json.dumps({"calls": named, "borders": found, "all": everything}))


def _is_resumed(frame: FrameType) -> bool:
    """Whether a generator or coroutine goes on that was called before."""
    return bool(frame.f_code.co_flags & _RESUMED) and frame.f_lasti > _BEGUN


def _package_of_caller(frame: FrameType) -> str:
    """Of the function of ours that called, through libraries if need be."""
    back = frame.f_back
    while back is not None and not _package(back.f_code):
        back = back.f_back
    return _package(back.f_code) if back else ""


@cache  # a slow count makes a request slow, and slow requests are checked and counted more often
def _package(code: CodeType) -> str:
    """The folder of a function of ours, else an empty text."""
    is_ours = code.co_filename.startswith(OURS)
    return str(Path(code.co_filename).parent) if is_ours else ""
