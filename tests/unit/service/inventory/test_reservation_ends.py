"""Releases and confirmations of reservations that move to another cluster meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.services import World, host


@pytest.mark.parametrize("use_case", ["release", "confirm"])
def test_a_reservation_that_moves_to_a_cluster_already_read_is_found(monkeypatch, use_case):
    """Its instance had another reservation before, which was released in the cluster it leaves."""
    world = World()
    world.report(host("a", cluster="two"), host("b", cluster="one", vcpus=1, vcpus_used=1))
    world.place("i1")
    world.inventory.release(["i1"])
    world.place("i1")
    read = world.state.changes
    other = world.beside()

    def late(scope: str, seen: Any) -> Any:
        if scope == "two":
            monkeypatch.setattr(world.state, "changes", read)
            other.report(host("a", cluster="one"))
        return read(scope, seen)

    monkeypatch.setattr(world.state, "changes", late)
    assert getattr(world.inventory, use_case)(["i1"]) == 1
    found = world.reservations()
    assert [each["state"] for each in found] == ([] if use_case == "release" else ["confirmed"])
