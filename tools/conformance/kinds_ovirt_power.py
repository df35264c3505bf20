"""Empty hosts that oVirt's power saving switches on and off."""

from collections.abc import Iterator, Mapping
from typing import Any

from conformance import ovirt
from scheduler_worker.model.cluster_load import BalanceMemory, ClusterLoad, HostLoad
from scheduler_worker.model.host_records import HostPower


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "empty_up_hosts", "pm_down_hosts", "pm_maintenance_hosts")


def run(document: Any) -> Iterator[str]:
    unit = ovirt.balance_unit("OptimalForPowerSaving", document["parameters"])
    cluster = ClusterLoad(hosts=tuple(_hosts(document)))
    action = unit.plan(cluster, BalanceMemory(), ovirt.NOW_S).power
    found = {"host": action.host, "to": action.to} if action else None
    if found != document["expected"]:
        yield f"the action is {found}; expected is {document['expected']}"


def _hosts(document: Any) -> Iterator[HostLoad]:
    for host in document["empty_up_hosts"]:
        yield _up(host)
    healthy = document["pm_maintenance_ok_hosts"]
    for name in document["pm_maintenance_hosts"]:
        power = HostPower(state="maintenance", by_policy=True, is_healthy=name in healthy)
        yield HostLoad(name=name, state="down", power=power)
    for name in document["pm_down_hosts"]:
        power = HostPower(state="down", by_policy=True)
        yield HostLoad(name=name, state="down", power=power)


def _up(host: Mapping[str, Any]) -> HostLoad:
    power = HostPower(
        is_managed=host["pm_enabled"],
        is_excluded=host["pm_policy_disabled"],
        is_healthy=host["external_status"] == "ok",
    )
    return HostLoad(name=host["id"], is_manager=host["is_spm"], power=power)
