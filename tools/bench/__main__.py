"""Benchmarks: how long a decision takes, how many requests per second come through.

    .venv/bin/python tools/bench decision --hosts 100 1000 10000 100000
    .venv/bin/python tools/bench requests --hosts 1000 --json requests.json
    .venv/bin/python tools/bench memory --hosts 10000
    .venv/bin/python tools/bench all

Every figure has its comparison in the same run: a decision beside other sizes, a request beside an
empty endpoint on the same transport. RabbitMQ and Redis are started privately, on free ports, and
stopped again.
"""

import argparse
import json
import sys
from pathlib import Path

import decision
import memory
import throughput


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for name, module in (
        ("decision", decision),
        ("requests", throughput),
        ("memory", memory),
        ("all", None),
    ):
        kind = kinds.add_parser(name, help=(module.__doc__ if module else "All of them.").strip())
        kind.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
        if module is not None:
            module.add_arguments(kind)
    arguments = parser.parse_args()
    figures = _all(parser) if arguments.kind == "all" else _one(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _one(arguments: argparse.Namespace) -> dict:
    module = {"decision": decision, "requests": throughput, "memory": memory}[arguments.kind]
    return {arguments.kind: module.run(arguments)}


def _all(parser: argparse.ArgumentParser) -> dict:
    figures: dict = {}
    for kind in ("decision", "memory", "requests"):
        figures |= _one(parser.parse_args([kind]))
    return figures


if __name__ == "__main__":
    sys.exit(main())
