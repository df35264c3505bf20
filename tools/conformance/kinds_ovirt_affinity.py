"""Filters and weights for affinity groups."""

import operator
from collections.abc import Iterator
from typing import Any

from conformance import ovirt

_UNITS = {
    "vm_vm_filter": "VmAffinityGroups",
    "vm_vm_weight": "VmAffinityGroups",
    "vm_host_filter": "VmToHostsAffinityGroups",
    "vm_host_weight": "VmToHostsAffinityGroups",
}
_RELATIONS = {"==": operator.eq, "<": operator.lt, ">": operator.gt}


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "kind", "groups", "hosts") and document["kind"] in _UNITS


def run(document: Any) -> Iterator[str]:
    bound = document.get("non_migratable", [])
    groups = [_group(each, bound) for each in document["groups"]]
    spec = ovirt.request(id=document.get("vm", "new"), affinity_groups=groups)
    running = document.get("running", {})
    names = dict.fromkeys([*document["hosts"], *running.values()])  # some are not offered
    hosts = ovirt.table(ovirt.record(name, {}) for name in names)
    for host in names:
        there = [vm for vm, where in running.items() if where == host]
        hosts.set_instances(host, {vm: {"uuid": vm} for vm in there})
    name = _UNITS[document["kind"]]
    if document["kind"].endswith("filter"):
        kept = ovirt.kept(ovirt.filter_unit(name), hosts, spec)
        kept = [host for host in kept if host in document["hosts"]]
        if sorted(kept) != sorted(document["expected"]):
            yield f"{kept} are kept; expected are {document['expected']}"
        return
    offered = hosts.take(hosts.rows_of(document["hosts"]).nonzero()[0])
    found = ovirt.scores(ovirt.weight_unit(name), offered, spec)
    found = found or dict.fromkeys(document["hosts"], 1.0)  # all are equal
    for first, relation, second in document.get("asserted", []):
        if not _RELATIONS[relation](found[first], found[second]):
            yield f"{first} {relation} {second} does not hold: {found}"
    for key in ("asserted_scores", "derived_scores"):
        expected = document.get(key, {})
        if any(found[host] != score for host, score in expected.items()):
            yield f"the scores are {found}; {key} are {expected}"


def _group(group: Any, bound: list[str]) -> dict[str, Any]:
    return {
        "priority": group.get("priority", 1.0),
        "vms_rule": group.get("vm_rule", "disabled"),
        "vms_enforcing": group["enforcing"] and "vm_rule" in group,
        "vms": group.get("vms", []),
        "non_migratable_vms": [vm for vm in bound if vm in group.get("vms", [])],
        "hosts_rule": group.get("host_rule", "disabled"),
        "hosts_enforcing": group["enforcing"] and "host_rule" in group,
        "hosts": group.get("hosts", []),
    }
