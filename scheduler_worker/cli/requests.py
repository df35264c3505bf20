"""``scheduler-workerctl explain`` and ``capacity``: what would become of requests.

``explain`` says why one would get its host, or none; ``capacity`` how many more instances fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scheduler_worker.cli.bind import FleetCommand, json_of
from scheduler_worker.cli.files import read_yaml
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.capacity import ClusterCapacity, FlavorCapacity
from scheduler_worker.model.decisions import HostVerdict
from scheduler_worker.operations.requests import (
    CapacityAnswer,
    CapacityRequest,
    ClusterExplanation,
    ExplainRequest,
    ExplanationView,
    capacity,
    explain,
)
from scheduler_worker.wording import one_line

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_FIGURES = {
    "vcpus": "vcpus",
    "ram": "memory_mb",
    "disk": "root_gb",
    "ephemeral": "ephemeral_gb",
    "swap": "swap",
}
"""Option, as of ``openstack flavor create`` -> field of Nova's Flavor."""
_COLUMNS = {
    "Name": "name",
    "VCPUs": "vcpus",
    "RAM": "memory_mb",
    "Disk": "root_gb",
    "Ephemeral": "ephemeral_gb",
    "Swap": "swap",
    "Properties": "extra_specs",
}
"""Column of ``openstack flavor list --long -f json`` -> field of Nova's Flavor."""

Plain = dict[str, Any]


class _OfRequests(FleetCommand):
    """Has options for a flavor's figures, and for what narrows the hosts."""

    FILE: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help=self.FILE)
        figures = parser.add_argument_group("one flavor, in place of a file")
        figures.add_argument("--vcpus", type=int, metavar="N")
        figures.add_argument("--ram", type=int, metavar="MIB")
        for name, unit in ("disk", "GIB"), ("ephemeral", "GIB"), ("swap", "MIB"):
            figures.add_argument(f"--{name}", type=int, metavar=unit, help="default: 0")
        narrowing = parser.add_argument_group("what narrows the hosts; goes before the file")
        narrowing.add_argument("--cluster", metavar="NAME")
        narrowing.add_argument("--zone", metavar="NAME")
        narrowing.add_argument("--project", metavar="ID")
        pairs: Plain = {"action": "append", "default": [], "type": _pair, "metavar": "KEY=VALUE"}
        for group, name, text in (
            (figures, "property", "an extra spec, such as trait:HW_CPU_X86_AVX2=required"),
            (narrowing, "image-property", "a property of the image"),
            (narrowing, "hint", "a scheduler hint"),
        ):
            group.add_argument(f"--{name}", help=f"{text}; may be repeated", **pairs)


class ExplainPlacement(_OfRequests):
    """Say where an instance would be placed now and why, or why nowhere; reserve nothing.

    In one sentence for a ticket, by the filters, and by host.

      scheduler-workerctl explain --url rabbit://... --vcpus 4 --ram 8192 --zone az1
      scheduler-workerctl explain --config FILE request.yaml --why-not cmp7

    A file is a request in YAML or JSON, with the fields of Nova's RequestSpec; only the flavor's
    vcpus and memory_mb are required:

      flavor: {vcpus: 4, memory_mb: 8192, root_gb: 40,
               extra_specs: {trait:HW_CPU_X86_AVX2: required}}
      image: {properties: {hw_architecture: x86_64}}
      scheduler_hints: {different_host: [6f0b...], cluster: east}
      project_id: 5d0a...
      availability_zone: az1
      is_bfv: true
      pci_requests: {requests: [{count: 1, spec: [{vendor_id: "10de", product_id: "1db4"}]}]}
    """

    FILE = "a request; - is stdin"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--why-not",
            action="append",
            metavar="HOST",
            help="only this host, with every filter that rejects it; repeatable",
        )
        parser.add_argument(
            "--limit", type=int, default=10, metavar="N", help="hosts of each cluster; default: 10"
        )
        parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        spec = read_yaml(arguments.file) if arguments.file else {}
        if not isinstance(spec, dict):
            example = "`flavor: {vcpus: 2, memory_mb: 4096}`"
            raise ConfigError(f"{arguments.file}: expected a request, such as {example}")
        if flavor := _flavor_of(arguments):
            spec["flavor"] = flavor
        if "flavor" not in spec:
            raise ConfigError("Give a request's file, or a flavor's figures: --vcpus 4 --ram 8192")
        spec = _narrowed(spec, arguments)
        asked = ExplainRequest(spec, hosts=arguments.why_not, limit=arguments.limit)
        explanation = client.call(explain, asked)
        if arguments.json:
            sys.stdout.write(json_of(explanation))
        else:
            sys.stdout.write(explanation_text(explanation))
        return 0


class CountCapacity(_OfRequests):
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

    FILE = "flavors; - is stdin"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        flavor = _flavor_of(arguments)
        if (arguments.file is None) == (flavor is None):
            raise ConfigError(
                "Give a file of flavors, or one flavor's figures: --vcpus 4 --ram 8192"
            )
        flavors, spec = ([flavor], {}) if flavor else _read_flavors(arguments.file)
        answer = client.call(capacity, CapacityRequest(flavors, _narrowed(spec, arguments)))
        sys.stdout.write(json_of(answer.flavors) if arguments.json else capacity_text(answer))
        return 0


# Arguments and files


def _flavor_of(arguments: argparse.Namespace) -> Plain | None:
    """The flavor that the options describe; None: they name no figures."""
    figures = {field: getattr(arguments, option) for option, field in _FIGURES.items()}
    figures = {name: value for name, value in figures.items() if value is not None}
    if arguments.property:
        figures["extra_specs"] = dict(arguments.property)
    return figures or None


def _narrowed(spec: Mapping[str, Any], arguments: argparse.Namespace) -> Plain:
    """A request with what the options say, which goes before it."""
    request = dict(spec)
    if arguments.zone is not None:
        request["availability_zone"] = arguments.zone
    if arguments.project is not None:
        request["project_id"] = arguments.project
    hints = dict(arguments.hint)
    if arguments.cluster is not None:
        hints["cluster"] = arguments.cluster
    if hints:
        request["scheduler_hints"] = {**(request.get("scheduler_hints") or {}), **hints}
    if arguments.image_property:
        image = dict(request.get("image") or {})
        image["properties"] = {**(image.get("properties") or {}), **dict(arguments.image_property)}
        request["image"] = image
    return request


def _read_flavors(path: Path) -> tuple[list[Plain], Plain]:
    """Flavors and a request without one: a list, or fields ``flavors`` and ``spec_obj``.

    The list may be what ``openstack flavor list --long -f json`` prints. Raises ConfigError.
    """
    document = read_yaml(path)
    has_both = isinstance(document, dict) and document.keys() <= {"flavors", "spec_obj"}
    flavors = document.get("flavors") if has_both else document
    spec = document.get("spec_obj") or {} if has_both else {}
    if not isinstance(flavors, list) or not all(isinstance(flavor, dict) for flavor in flavors):
        example = "`- {name: m1, vcpus: 2, memory_mb: 4096}`"
        raise ConfigError(f"{path}: expected a list of flavors, such as {example}")
    if not isinstance(spec, dict):
        raise ConfigError(f"{path}: spec_obj: expected fields, such as `availability_zone: az1`")
    return [_from_openstack(flavor) if "VCPUs" in flavor else flavor for flavor in flavors], spec


def _from_openstack(columns: Plain) -> Plain:
    """An empty column, as that of a flavor without swap, is left out."""
    fields = {name: columns.get(column) for column, name in _COLUMNS.items()}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


# Texts


def explanation_text(explanation: ExplanationView) -> str:
    """The answer of ``explain`` for a terminal."""
    return _text(_explanation(explanation))


def _explanation(explanation: ExplanationView) -> Iterator[str]:
    yield explanation.sentence or ""
    for part in (explanation, *explanation.others):
        if part.cluster is not None:
            yield from _explained(part)
    yield from (f"{host}: {why}" for host, why in explanation.not_found.items())
    yield from map(_not_asked, explanation.not_asked)


def _explained(part: ClusterExplanation) -> Iterator[str]:
    policy = part.policy
    under = f" under policy {policy.name} version {policy.version}" if policy else ""
    yield f"cluster {part.cluster}: {part.hosts:,} hosts{under}"
    for step in part.filters:
        if step.hosts_out < step.hosts_in:
            yield f"  {step.name}: {step.hosts_in:,} -> {step.hosts_out:,}"
    for verdict in part.verdicts:
        yield f"  host {verdict.host}: {_verdict(verdict)}"
        yield from (f"    also {each}" for each in verdict.also_rejected_by)
    if part.left_out:
        yield f"  and {part.left_out:,} more hosts; see --limit"
    yield from (f"  note: {note}" for note in part.notes)


def _verdict(verdict: HostVerdict) -> str:
    if verdict.rejected_by:
        return f"{verdict.rejected_by}: {verdict.reason}"
    parts = [f"{part.name} {part.product:.2f}" for part in verdict.weights
             if part.product]  # fmt: skip
    weight = verdict.weight
    total = "unknown" if weight is None else f"{weight:.2f}"
    return f"passes, weight {total}" + (f" = {' + '.join(parts)}" if parts else "")


def capacity_text(answer: CapacityAnswer) -> str:
    """The answer of ``capacity`` for a terminal."""
    return _text(
        chain(
            (line for flavor in answer.flavors for line in _counted(flavor)),
            map(_not_asked, answer.not_asked),
        )
    )


def _not_asked(what: str) -> str:
    return f"note: {what} was not asked; the log of the process that answered says why"


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{one_line(line)}\n" for line in lines)


def _counted(flavor: FlavorCapacity) -> Iterator[str]:
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
