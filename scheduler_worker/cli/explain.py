"""``scheduler-workerctl explain``: why a request would get its host, or none."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_worker.cli import requests
from scheduler_worker.cli.bind import FleetCommand, json_of
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.decisions import HostVerdict
from scheduler_worker.operations.explain import (
    ClusterExplanation,
    ExplainRequest,
    ExplanationView,
    explain,
)

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient


class ExplainPlacement(FleetCommand):
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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", type=Path, nargs="?", help="a request; - is stdin"
        )
        requests.add_options(parser)
        parser.add_argument(
            "--why-not", action="append", metavar="HOST", help="only this host; repeatable"
        )
        parser.add_argument(
            "--limit", type=int, default=10, metavar="N", help="hosts of each cluster; default: 10"
        )
        parser.add_argument("--json", action="store_true", help="print all that is known, as JSON")

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        spec = requests.read_request(arguments.file) if arguments.file else {}
        if flavor := requests.flavor_of(arguments):
            spec["flavor"] = flavor
        if "flavor" not in spec:
            raise ConfigError("Give a request's file, or a flavor's figures: --vcpus 4 --ram 8192")
        asked = ExplainRequest(
            requests.narrowed(spec, arguments), hosts=arguments.why_not, limit=arguments.limit
        )
        explanation = client.call(explain, asked)
        sys.stdout.write(json_of(explanation) if arguments.json else text_of(explanation))
        return 0


def text_of(explanation: ExplanationView) -> str:
    """The answer of ``explain`` for a terminal."""
    lines = [explanation.sentence or ""]
    for part in (explanation, *explanation.others):
        if part.cluster is not None:
            lines += _lines(part)
    lines += [f"{host}: {why}" for host, why in explanation.not_found.items()]
    return "".join(f"{line}\n" for line in lines)


def _lines(part: ClusterExplanation) -> Iterator[str]:
    policy = part.policy
    under = f" under policy {policy.name} version {policy.version}" if policy else ""
    yield f"cluster {part.cluster}: {part.hosts:,} hosts{under}"
    for step in part.filters:
        if step.hosts_out < step.hosts_in:
            yield f"  {step.name}: {step.hosts_in:,} -> {step.hosts_out:,}"
    for verdict in part.verdicts:
        yield f"  host {verdict.host}: {_verdict(verdict)}"
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
