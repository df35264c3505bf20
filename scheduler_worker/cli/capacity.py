"""``scheduler-workerctl capacity``: how many more instances fit."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_worker.cli import requests
from scheduler_worker.cli.bind import FleetCommand, json_of
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.capacity import ClusterCapacity, FlavorCapacity
from scheduler_worker.operations.capacity import CapacityAnswer, CapacityRequest, capacity

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient


class CountCapacity(FleetCommand):
    """Count how many more instances of each of some flavors fit, by cluster and zone.

    Says which resource runs out first. The count is that of placing instances one by one until one
    is refused, under each cluster's policy; flavors are counted independently of each other.
    Nothing is reserved.

      scheduler-workerctl capacity --url rabbit://... --vcpus 4 --ram 8192 --disk 40
      scheduler-workerctl capacity --config FILE flavors.yaml --zone az1
      openstack flavor list --long -f json | scheduler-workerctl capacity --config FILE -

    A file is a list of flavors in YAML or JSON, or has two fields:

      flavors:
        - {name: m1.large, vcpus: 4, memory_mb: 8192, root_gb: 80}
        - {name: gpu, vcpus: 8, memory_mb: 32768, extra_specs: {trait:CUSTOM_GPU: required}}
      spec_obj: {availability_zone: az1, scheduler_hints: {cluster: east}}

    "up to" marks an upper bound: not every host was filled to the end.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", type=Path, nargs="?", help="flavors; - is stdin"
        )
        requests.add_options(parser)
        parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        flavor = requests.flavor_of(arguments)
        if (arguments.file is None) == (flavor is None):
            raise ConfigError(
                "Give a file of flavors, or one flavor's figures: --vcpus 4 --ram 8192"
            )
        flavors, spec = ([flavor], {}) if flavor else requests.read_flavors(arguments.file)
        answer = client.call(capacity, CapacityRequest(flavors, requests.narrowed(spec, arguments)))
        sys.stdout.write(json_of(answer.flavors) if arguments.json else text_of(answer))
        return 0


def text_of(answer: CapacityAnswer) -> str:
    """The answer of ``capacity`` for a terminal."""
    return "".join(f"{line}\n" for flavor in answer.flavors for line in _lines(flavor))


def _lines(flavor: FlavorCapacity) -> Iterator[str]:
    first = f", {flavor.runs_out_first} runs out first" if flavor.runs_out_first else ""
    counted = [cluster for cluster in flavor.clusters if not cluster.problem]
    more = f"{_count(flavor)} more{first}" if counted else "not counted"
    yield f"{flavor.name}: {more}"
    for cluster in flavor.clusters:
        if cluster.problem:
            yield f"  {cluster.cluster}: not counted: {cluster.problem}"
            continue
        hosts = f"{cluster.fitting_hosts:,} of {_hosts(cluster.hosts)}"
        yield f"  {cluster.cluster}: {_count(cluster)} on {hosts}"
        if zones := [f"{name} {_number(count)}" for name, count in cluster.zones.items()]:
            yield f"    by zone: {', '.join(zones)}"
        for name, limited in cluster.limited_by.items():
            full = f", {limited.full_hosts:,} of them full" if limited.full_hosts else ""
            yield f"    limited by {name}: {_hosts(limited.hosts)}{full}"
        for name, lost in cluster.lost_to.items():
            room = _number(lost.instances)
            yield f"    rejected by {name}: {_hosts(lost.hosts)}, with room for {room}"


def _count(room: FlavorCapacity | ClusterCapacity) -> str:
    return f"{'' if room.is_exact else 'up to '}{_number(room.instances)}"


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _number(count: int | None) -> str:
    return "any number" if count is None else f"{count:,}"
