"""``scheduler-workerctl capacity``: how many more instances fit."""

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
Count how many more instances of each of some flavors fit, by cluster and zone, and say which
resource runs out first. The count is that of placing instances one by one until one is refused,
under each cluster's policy; flavors are counted independently of each other. Nothing is reserved.

  scheduler-workerctl capacity --url rabbit://... --vcpus 4 --ram 8192 --disk 40
  scheduler-workerctl capacity --config FILE flavors.yaml --zone az1
  openstack flavor list --long -f json | scheduler-workerctl capacity --config FILE -

A file is a list of flavors in YAML or JSON, or has two fields:

  flavors:
    - {name: m1.large, vcpus: 4, ram: 8192, disk: 80}
    - {name: gpu, vcpus: 8, ram: 32768, extra_specs: {trait:CUSTOM_GPU: required}}
  setting: {cluster: east, zone: az1}

"up to" marks an upper bound: not every host was filled to the end.
"""


def add_to(groups: Any) -> None:
    """Add the command to the parsers of all groups."""
    command = add_command(groups, "capacity", _TEXT, "how many more instances fit")
    command.add_argument("file", metavar="FILE", type=Path, nargs="?", help="flavors; - is stdin")
    by_hand.add_setting(command)
    command.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    add_connection(command)
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    flavor = by_hand.flavor_of(arguments)
    if (arguments.file is None) == (flavor is None):
        raise ConfigError("Give a file of flavors, or one flavor's figures: --vcpus 4 --ram 8192")
    flavors, setting = ([flavor], {}) if flavor else by_hand.read_flavors(arguments.file)
    with connected(arguments) as client:
        found = client.capacity(flavors, setting=by_hand.setting_of(arguments, setting))
    sys.stdout.write(f"{json.dumps(found, indent=2)}\n" if arguments.json else text_of(found))
    return 0


def text_of(found: list[dict[str, Any]]) -> str:
    """The answer of ``capacity`` for a terminal."""
    return "".join(f"{line}\n" for each in found for line in _lines(each))


def _lines(flavor: Mapping[str, Any]) -> Iterator[str]:
    first = f", {flavor['runs_out_first']} runs out first" if flavor["runs_out_first"] else ""
    counted = [each for each in flavor["clusters"] if not each["problem"]]
    more = f"{_count(flavor)} more{first}" if counted else "not counted"
    yield f"{flavor['name']}: {more}"
    for each in flavor["clusters"]:
        if each["problem"]:
            yield f"  {each['cluster']}: not counted: {each['problem']}"
            continue
        hosts = f"{each['fitting_hosts']:,} of {_hosts(each['hosts'])}"
        yield f"  {each['cluster']}: {_count(each)} on {hosts}"
        if zones := [f"{name} {_number(count)}" for name, count in each["zones"].items()]:
            yield f"    by zone: {', '.join(zones)}"
        for name, limited in each["limited_by"].items():
            full = f", {limited['full_hosts']:,} of them full" if limited["full_hosts"] else ""
            yield f"    limited by {name}: {_hosts(limited['hosts'])}{full}"
        for name, lost in each["lost_to"].items():
            room = _number(lost["instances"])
            yield f"    rejected by {name}: {_hosts(lost['hosts'])}, with room for {room}"


def _count(found: Mapping[str, Any]) -> str:
    return f"{'' if found['is_exact'] else 'up to '}{_number(found['instances'])}"


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _number(count: int | None) -> str:
    return "any number" if count is None else f"{count:,}"
