"""Scores of the weights that spread or pack VMs."""

from collections.abc import Iterator
from typing import Any

from conformance import ovirt


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "unit", "hosts", "vm", "derived_scores")


def run(document: Any) -> Iterator[str]:
    vm = document["vm"]
    spec = ovirt.request(
        vm.get("cpus", 1),
        vm["mem_mb"],
        run_on=vm.get("run_on"),
        cpu_percent=vm.get("cpu_percent"),
        static_overhead_mb=vm.get("static_overhead_mb", 0),
        possible_overhead_mb=vm.get("possible_overhead_mb", 0),
    )
    unit = ovirt.weight_unit(document["unit"], document["parameters"])
    hosts = ovirt.table(map(ovirt.measured, document["hosts"]))
    found = ovirt.scores(unit, hosts, spec)
    if found != document["derived_scores"]:
        yield f"the scores are {found}; derived are {document['derived_scores']}"
    best = min(found, key=lambda host: found[host])
    if best != document["expected_best"]:
        yield f"{best} is best; expected is {document['expected_best']}"
