"""Pending resources: our claims, taken from the hosts' columns and given back."""

from collections.abc import Iterator
from typing import Any

import msgspec

from conformance import ovirt
from conformance.reading import Malformed
from scheduler_worker.model.claims import Resources, reservation_id
from scheduler_worker.scheduling.ovirt import host_metrics

_AMOUNTS = {"mem": "memory_mb", "cpu": "vcpus"}


def recognise(document: Any) -> bool:
    return (
        ovirt.is_case(document, "steps", "expected")
        and isinstance(document["expected"], dict)
        and all(isinstance(step, list) for step in document["steps"])
    )


class _Pending:
    """One reservation for each VM; adding to it on another host moves it."""

    def __init__(self, names: list[str]) -> None:
        self.hosts = ovirt.table(ovirt.record(name, {}, memory_mb=2**20) for name in names)
        self.of: dict[str, tuple[str, dict[str, int]]] = {}

    def add(self, kind: str, host: str, vm: str, amount: int = 0) -> None:
        _, amounts = self.of.get(vm, (host, {}))
        self.clear_vm(vm)
        if kind in _AMOUNTS:
            amounts = {**amounts, _AMOUNTS[kind]: amount}
        elif kind != "vm":
            raise Malformed(f"{kind} is no kind of pending resource")
        self.of[vm] = host, amounts
        resources = msgspec.convert(amounts, Resources)
        self.hosts.consume(ovirt.claim(vm, host, resources))

    def clear_vm(self, vm: str) -> None:
        host, _ = self.of.pop(vm, ("", {}))
        self.hosts.give_back(reservation_id(vm, host))

    def clear_host(self, host: str) -> None:
        for vm in [vm for vm, (where, _) in self.of.items() if where == host]:
            self.clear_vm(vm)


def run(document: Any) -> Iterator[str]:
    steps, expected = document["steps"], document["expected"]
    names = {step[2] for step in steps if step[0] == "add"}
    names |= {host for key, some in expected.items() if key.endswith("_on") for host in some}
    pending = _Pending(sorted(names))
    for what, *arguments in steps:
        step = getattr(pending, what, None)
        if step is None:
            raise Malformed(f"{what} is no step")
        step(*arguments)
    for key, some in expected.items():
        for name, value in some.items():
            found = _figure(pending, key, name)
            if found != value:
                yield f"{key} {name} is {found}; expected is {value}"


def _figure(pending: _Pending, key: str, name: str) -> Any:
    hosts = pending.hosts
    if key == "host_of":
        [claimed] = hosts.reservations_of_instance(name)
        return claimed.host
    if key == "mem_of_vm":
        return [
            reservation.resources.memory_mb for reservation in hosts.reservations_of_instance(name)
        ]
    row = hosts.row_of(name)
    if row is None:
        raise Malformed(f"{key}: no host {name}")
    if key == "vms_on":
        return sorted(hosts.instances_of(name))
    columns = {"mem_on": host_metrics.pending_mb, "cpu_on": host_metrics.pending_vcpus}
    if key not in columns:
        raise Malformed(f"{key} is no figure of pending resources")
    return columns[key](hosts)[row]
