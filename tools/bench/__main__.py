"""Benchmarks: how long a decision takes, how many requests per second come through.

    .venv/bin/python tools/bench decision --hosts 100 1000 10000 100000
    .venv/bin/python tools/bench --peer  # decisions, beside Nova's own
    .venv/bin/python tools/bench capacity --hosts 10000 --flavors 30
    .venv/bin/python tools/bench balances --hosts 10000
    .venv/bin/python tools/bench anywhere --clusters 1 10 100
    .venv/bin/python tools/bench cells --cells 16 24
    .venv/bin/python tools/bench rehearse --decisions 20000
    .venv/bin/python tools/bench commit --hosts 1000 10000 --json commit.json
    .venv/bin/python tools/bench lock
    .venv/bin/python tools/bench rpc --outstanding 16
    .venv/bin/python tools/bench scale --simulate
    .venv/bin/python tools/bench trace --list
    .venv/bin/python tools/bench memory --hosts 10000
    .venv/bin/python tools/bench footprint
    .venv/bin/python tools/bench tuning --vms 10000
    .venv/bin/python tools/bench external --hosts 1000
    .venv/bin/python tools/bench claims --clients 16
    .venv/bin/python tools/bench verify --clients 1 16
    .venv/bin/python tools/bench feed --hosts 10000
    .venv/bin/python tools/bench reports --clusters 10 1000
    .venv/bin/python tools/bench nova --sizes 100 1000 10000
    .venv/bin/python tools/bench goals
    .venv/bin/python tools/bench all
    .venv/bin/python tools/bench decision --hosts 10000 --against ../other --turns 5

Every figure has its comparison in the same run, measured in turn with it: our lock beside
redis-py's, a worker beside empty endpoints, one process beside two. RabbitMQ and Redis are started
privately, on free ports, and stopped again. With --against the same benchmark runs in another
checkout of this project (make venv there), in turn with this one, and the ratios are printed.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench import (  # noqa: E402 - the line above makes it importable
    against,
    anywhere,
    balances,
    capacity,
    cells,
    claims,
    commit,
    decision,
    external,
    feed,
    footprint,
    goals,
    lock,
    memory,
    placing,
    rehearsing,
    reporting,
    rpc,
    scale,
    tracing,
    tuning,
    verifying,
)

KINDS = {
    "decision": decision,
    "capacity": capacity,
    "anywhere": anywhere,
    "balances": balances,
    "cells": cells,
    "rehearse": rehearsing,
    "memory": memory,
    "footprint": footprint,
    "tuning": tuning,
    "external": external,
    "feed": feed,
    "reports": reporting,
    "lock": lock,
    "commit": commit,
    "rpc": rpc,
    "scale": scale,
    "trace": tracing,
    "claims": claims,
    "verify": verifying,
    "goals": goals,
    "nova": placing,  # no module may have the name that Nova has, for peer.py imports that
}
APART = ("claims", "verify", "scale", "goals", "nova")
"""What needs another project, takes minutes by itself, or repeats other kinds."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for name, module in [*KINDS.items(), ("all", None)]:
        kind = kinds.add_parser(
            name,
            help=(module.__doc__ or "").strip() if module else f"All but {', '.join(APART)}.",
        )
        kind.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
        if module is not None:
            kind.add_argument("--against", type=Path, metavar="CHECKOUT", help="beside another one")
            kind.add_argument("--turns", type=int, default=5, metavar="N", help="default: 5")
            module.add_arguments(kind)
    words = sys.argv[1:]
    if "--peer" in words and words[0].startswith("-"):
        words.insert(0, "decision")  # the kind that has a peer
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and so leave no server behind
    all_ = [name for name in KINDS if name not in APART]
    names = all_ if arguments.kind == "all" else [arguments.kind]
    figures = {}
    if getattr(arguments, "against", None) is not None:
        figures[arguments.kind] = against.compare(arguments.against, arguments.turns, _plain(words))
        names = []
    for name in names:
        options = parser.parse_args([name]) if arguments.kind == "all" else arguments
        figures[name] = KINDS[name].run(options)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _plain(words: list[str]) -> list[str]:
    """The arguments without those that only this run needs."""
    left = iter(words)
    found = []
    for word in left:
        if word in {"--against", "--turns", "--json"}:
            next(left)
        else:
            found.append(word)
    return found


if __name__ == "__main__":
    sys.exit(main())
