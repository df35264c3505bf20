"""Whether the filters of ours require of hosts what ours asks Placement for.

The question to Placement is that of requests that take from sharing providers; all others are
decided by filters. A host that has just what is asked has to pass them, and one that lacks any part
of it must not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from conformance import nova

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter

Plain = dict[str, Any]
ROOT = "00000000-0000-4000-8000-000000000000"
NODE = {"vcpus": 1, "memory_mb": 1, "local_gb": 1, "free_disk_gb": 1, "free_ram_mb": 1}


class Witness:
    """A host with just what a question asks for, and what a host must not have."""

    def __init__(self, query: str) -> None:
        self.providers: dict[str, Plain] = {"": _provider(ROOT, None)}
        """By the name of the group that they serve; each is below the one before it."""
        self.forbidden: list[tuple[str, str]] = []
        """The name of a group, and a trait that its provider must not have."""
        self.one_of: list[list[str]] = []
        """Uuids of aggregates, of which the host has to be in one of each."""
        self.none_of: list[str] = []
        for key, value in parse_qsl(query):
            self._read(key, value)

    def _read(self, key: str, value: str) -> None:
        parts = value.rpartition("in:")[2].split(",")
        if key == "member_of" and value.startswith("!"):
            self.none_of += parts
        elif key == "member_of":
            self.one_of.append(parts)
        elif key == "root_required" or key.startswith("required"):
            name = key.removeprefix("root_").removeprefix("required")
            own = self._of(name)["traits"]
            own += [part for part in parts if not part.startswith("!") and part not in own]
            self.forbidden += [(name, part[1:]) for part in parts if part.startswith("!")]
        elif key.startswith("resources"):
            for name, _, amount in (part.partition(":") for part in parts):
                own = self._of(key.removeprefix("resources"))["inventories"]
                own[name] = {"total": int(amount), "max_unit": int(amount)}

    def _of(self, name: str) -> Plain:
        if name not in self.providers:
            [*_, above] = self.providers.values()
            uuid = f"{ROOT[:-2]}{len(self.providers):02}"
            self.providers[name] = _provider(uuid, above["uuid"])
        return self.providers[name]

    def spoiled(self) -> Iterator[tuple[str, Witness]]:
        """Hosts that miss what is asked in one point each."""
        for name, provider in self.providers.items():
            for trait in provider["traits"]:
                yield f"lacks {trait}", self._with(_without(name, trait))
            for each in provider["inventories"]:
                yield f"has too little {each}", self._with(_less(name, each))
        for name, trait in self.forbidden:
            yield f"has {trait}", self._with(_having(name, trait))
        for number, some in enumerate(self.one_of):
            others = [each for at, each in enumerate(self.one_of) if at != number]
            if not any(set(some) & set(each[:1]) for each in others):
                yield f"is in none of {some}", self._with(_elsewhere(others))
        for each in self.none_of:
            yield f"is in {each}", self._with(_elsewhere([*self.one_of, [each]]))

    def _with(self, change: Callable[[Witness], None]) -> Witness:
        changed = copy.deepcopy(self)
        change(changed)
        return changed

    def host(self, name: str, known: Sequence[Plain]) -> nova.Host:
        """The host; ``known`` are aggregates, others have no metadata."""
        by_uuid = {each["uuid"]: each for each in known}
        member_of = {some[0] for some in self.one_of}
        return nova.Host(
            compute_node={
                **NODE,
                "host": name,
                "hypervisor_hostname": name,
                "uuid": ROOT,
                "resource_providers": list(self.providers.values()),
            },
            service={},
            aggregates=[by_uuid.get(uuid) or aggregate(uuid) for uuid in sorted(member_of)],
            instances=[],
            cell_uuid=ROOT,
            allocation_candidates=[],
        )


def contradiction(
    query: str, spec: RequestSpec, filters: Sequence[Filter], aggregates: Sequence[Plain]
) -> str | None:
    """What the filters decide otherwise than the question asks; None: nothing."""
    right = Witness(query)
    if any(set(some) <= set(right.none_of) for some in right.one_of):
        return None  # no host can have what is asked
    if not _passes(right, spec, filters, aggregates):
        return "the filters reject a host that has just what is asked"
    for why, wrong in right.spoiled():
        if _passes(wrong, spec, filters, aggregates):
            return f"the filters pass a host that {why}"
    return None


def aggregate(uuid: str) -> Plain:
    """An aggregate without metadata."""
    return {"id": 1, "uuid": uuid, "name": "a", "hosts": [], "metadata": {}}


def _passes(
    witness: Witness, spec: RequestSpec, filters: Sequence[Filter], aggregates: Sequence[Plain]
) -> bool:
    hosts = _table(witness, aggregates)
    passed = np.ones(len(hosts), bool)
    for unit in filters:
        if unit.applies(spec):
            passed &= unit.passes(hosts, spec)
    return bool(passed[0])


def _table(witness: Witness, aggregates: Sequence[Plain]) -> HostTable:
    """The host, and another that is in all aggregates, so that they are known."""
    host = witness.host("witness", aggregates)
    other = {**NODE, "host": "other", "hypervisor_hostname": "other", "uuid": ROOT[:-1] + "f"}
    everywhere = nova.Host(
        compute_node=other, service={}, aggregates=[*aggregates], instances=[], cell_uuid=ROOT,
        allocation_candidates=[],
    )  # fmt: skip
    return nova.table([host, everywhere])


def _provider(uuid: str, parent: str | None) -> Plain:
    found = {"uuid": uuid, "name": uuid, "inventories": {}, "traits": []}
    return found | ({"parent_provider_uuid": parent} if parent else {})


def _without(name: str, trait: str) -> Callable[[Witness], None]:
    return lambda host: host.providers[name]["traits"].remove(trait)


def _having(name: str, trait: str) -> Callable[[Witness], None]:
    return lambda host: host.providers[name]["traits"].append(trait)


def _less(name: str, resource_class: str) -> Callable[[Witness], None]:
    def change(host: Witness) -> None:
        inventories = host.providers[name]["inventories"]
        inventories[resource_class]["total"] -= 1

    return change


def _elsewhere(one_of: list[list[str]]) -> Callable[[Witness], None]:
    return lambda host: setattr(host, "one_of", one_of)
