"""Placing VMs on a host while a balance puts it to sleep, on two threads."""

from __future__ import annotations

import threading

from scheduler_worker.errors import NoValidHost
from tests.unit.service.balancing.test_power import Sleepers

RACES = 20


def race() -> tuple[list[str], bool]:
    """The hosts of VMs that another worker placed on b meanwhile; whether b is put to sleep."""
    sleepers = Sleepers()
    other = sleepers.beside()
    begin = threading.Barrier(2)
    placed: list[str] = []

    def place() -> None:
        begin.wait()
        try:
            for number in range(5):
                placed.extend(other.place(f"vm-{number}", only_hosts=["b"], memory_mb=1))
        except NoValidHost:
            pass

    placing = threading.Thread(target=place, daemon=True)
    placing.start()
    begin.wait()
    asked = sleepers.step()
    placing.join()
    return placed, ("b", "maintenance") in asked


def test_a_host_gets_vms_or_is_put_to_sleep_and_never_both():
    for _ in range(RACES):
        placed, sleeps = race()
        assert bool(placed) != sleeps
