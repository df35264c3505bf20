"""The filter and the weight for hosts with newer operating systems."""

from collections.abc import Iterator
from typing import Any

from conformance import ovirt

_SOURCE = "the VM's own host"


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "vm_running", "source_os", "hosts")


def run(document: Any) -> Iterator[str]:
    systems = document["hosts"]
    running = document["vm_running"]
    records = [ovirt.record(name, {"os": system}) for name, system in systems.items()]
    if running:
        records.append(ovirt.record(_SOURCE, {"os": document["source_os"]}))
    spec = ovirt.request(run_on=_SOURCE if running else None)
    hosts = ovirt.table(records)
    if "expected_kept" in document:
        kept = [
            host
            for host in ovirt.kept(ovirt.filter_unit("InClusterUpgrade"), hosts, spec)
            if host != _SOURCE
        ]
        if sorted(kept) != sorted(document["expected_kept"]):
            yield f"{kept} are kept; expected are {document['expected_kept']}"
    if "expected_weights" in document:
        rows = hosts.rows_of(systems).nonzero()[0]
        found = ovirt.scores(ovirt.weight_unit("InClusterUpgrade"), hosts.take(rows), spec)
        if found != document["expected_weights"]:
            yield f"the scores are {found}; expected are {document['expected_weights']}"
