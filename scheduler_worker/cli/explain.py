"""``scheduler-workerctl explain``: why a request would get its host, or none."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scheduler_worker.cli import by_hand
from scheduler_worker.cli.commands import add_command
from scheduler_worker.cli.connection import add_connection, connected
from scheduler_worker.errors import ConfigError

_TEXT = """\
Say where an instance would be placed now and why, or why nowhere: in one sentence for a ticket, by
the filters, and by host. Nothing is reserved.

  scheduler-workerctl explain --url rabbit://... --vcpus 4 --ram 8192 --zone az1
  scheduler-workerctl explain --config FILE request.yaml --why-not cmp7

A file is a request in YAML or JSON; all but the flavor's vcpus and ram is optional:

  flavor: {vcpus: 4, ram: 8192, disk: 40, extra_specs: {trait:HW_CPU_X86_AVX2: required}}
  image_properties: {hw_architecture: x86_64}
  hints: {different_host: [6f0b...]}
  project: 5d0a...
  zone: az1
  cluster: east
  boots_from_volume: true
  devices: [{count: 1, spec: [{vendor_id: "10de", product_id: "1db4"}]}]
  why_not: [cmp7]
"""


def add_to(groups: Any) -> None:
    """Add the command to the parsers of all groups."""
    command = add_command(groups, "explain", _TEXT, "why a request would get its host, or none")
    command.add_argument("file", metavar="FILE", type=Path, nargs="?", help="a request; - is stdin")
    by_hand.add_setting(command)
    command.add_argument(
        "--why-not", action="append", default=[], metavar="HOST", help="only this host; repeatable"
    )
    command.add_argument(
        "--limit", type=int, default=10, metavar="N", help="hosts of each cluster; default: 10"
    )
    command.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    add_connection(command)
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    request = by_hand.read_request(arguments.file) if arguments.file else {}
    if flavor := by_hand.flavor_of(arguments):
        request["flavor"] = flavor
    if "flavor" not in request:
        raise ConfigError("Give a request's file, or a flavor's figures: --vcpus 4 --ram 8192")
    request = by_hand.setting_of(arguments, request)
    if arguments.why_not:
        request["why_not"] = arguments.why_not
    with connected(arguments) as client:
        found = client.explain_request(request, limit=arguments.limit)
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n" if arguments.json else text_of(found))
    return 0


def text_of(found: Mapping[str, Any]) -> str:
    """The answer of ``explain`` for a terminal."""
    lines = [found["sentence"]]
    for part in (found, *found["others"]):
        if part["cluster"] is not None:
            lines += _lines(part)
    lines += [f"{host}: {why}" for host, why in found["not_found"].items()]
    return "".join(f"{line}\n" for line in lines)


def _lines(part: Mapping[str, Any]) -> Iterator[str]:
    policy = part["policy"]
    under = f" under policy {policy['name']} version {policy['version']}" if policy else ""
    yield f"cluster {part['cluster']}: {part['hosts']:,} hosts{under}"
    for step in part["filters"]:
        if step["hosts_out"] < step["hosts_in"]:
            yield f"  {step['name']}: {step['hosts_in']:,} -> {step['hosts_out']:,}"
    for verdict in part["verdicts"]:
        yield f"  host {verdict['host']}: {_verdict(verdict)}"
    if part["left_out"]:
        yield f"  and {part['left_out']:,} more hosts; see --limit"
    yield from (f"  note: {note}" for note in part["notes"])


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict["rejected_by"]:
        return f"{verdict['rejected_by']}: {verdict['reason']}"
    parts = [f"{each['name']} {each['product']:.2f}" for each in verdict["weights"]
             if each["product"]]  # fmt: skip
    weight = verdict["weight"]
    total = "unknown" if weight is None else f"{weight:.2f}"
    return f"passes, weight {total}" + (f" = {' + '.join(parts)}" if parts else "")
