"""How many empty hosts stay on: at most one host changes its state at a time."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_worker.model.cluster_load import HostLoad, PowerAction


def power_action(hosts: Sequence[HostLoad], reserve: int) -> PowerAction | None:
    """The next step towards ``reserve`` empty hosts that are up; None: there is none to take."""
    empty = [each for each in hosts if _is_empty(each)]
    resting = [each for each in hosts if _was_put(each, "maintenance") and not _is_excluded(each)]
    healthy = [each for each in resting if each.power.is_healthy]
    why = f"{len(empty)} empty hosts are up, {reserve} are wanted"
    if len(empty) < reserve:
        off = [each for each in hosts if _was_put(each, "down") and each.power.is_healthy]
        found = (each for each in resting + off if each.state != "disabled")
        return next((PowerAction(host=each.name, to="up", reason=why) for each in found), None)
    if healthy and (len(empty) == reserve or len(healthy) > 1):
        why += f", {len(healthy)} more are in maintenance"
        return PowerAction(host=healthy[0].name, to="down", reason=why)
    if len(empty) == reserve:
        return None
    found = (each for each in empty if _may_rest(each))
    return next((PowerAction(host=each.name, to="maintenance", reason=why) for each in found), None)


def _is_empty(host: HostLoad) -> bool:
    return host.state == "up" and host.is_settled and not host.num_vms


def _was_put(host: HostLoad, state: str) -> bool:
    return host.power.state == state and bool(host.power.by_policy)


def _is_excluded(host: HostLoad) -> bool:
    return host.power.is_excluded


def _may_rest(host: HostLoad) -> bool:
    power = host.power
    ready = power.is_managed and power.is_healthy and not power.is_excluded
    return ready and not host.is_manager
