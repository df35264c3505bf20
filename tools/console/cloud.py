"""The demo cloud: the example fleet as three clusters, and its requests again and again."""

import itertools
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from replay.driver import Client, Driver, Settings
from replay.streams import Arrival, Plain, Stream, fleet

SHIPPED_FLEET = Path(__file__).resolve().parents[2] / "examples" / "fleet"
SETTINGS = Settings(clients=2, batch=10_000, speed=60.0, report_s=10.0, persists=True)
"""Some five requests a second; their reservations last until the hosts report, ten seconds."""
_ENDLESS = sys.maxsize
_WITH_CELLS, _WITH_DEVICES = 4, 10
"""One of so many hosts reports NUMA cells, or devices."""


def stream(directory: Path = SHIPPED_FLEET) -> Stream:
    """Hosts whose zone is their cluster, some with NUMA cells and devices; endless requests."""
    found = fleet.read(directory)
    zone_of = {
        host: aggregate["metadata"]["availability_zone"]
        for aggregate in found.aggregates
        if "availability_zone" in aggregate["metadata"]
        for host in aggregate["hosts"]
    }
    hosts = [
        {**host, "cluster": zone_of[host["host"]], **_topology(host, number)}
        for number, host in enumerate(found.hosts)
    ]
    return Stream(hosts, found.aggregates, repeated(list(found.arrivals)), _ENDLESS)


def repeated(arrivals: Sequence[Arrival]) -> Iterator[Arrival]:
    """The arrivals without end, each time for other instances and later."""
    length_s = arrivals[-1].at_s
    for time in itertools.count():
        for arrival in arrivals:
            instance = str(uuid.uuid4()) if time else arrival.instance_uuid
            yield arrival._replace(at_s=arrival.at_s + time * length_s, instance_uuid=instance)


def _topology(host: Plain, number: int) -> Plain:
    found: Plain = {}
    if number % _WITH_CELLS == 0:
        found["numa_topology"] = {"cells": [_cell(host, cell) for cell in (0, 1)]}
    if number % _WITH_DEVICES == 0:
        found["pci_device_pools"] = [
            {"vendor_id": "10de", "product_id": "2235", "numa_node": 0, "count": number % 4 + 1},
            {"vendor_id": "8086", "product_id": "154c", "numa_node": 1, "count": 16},
        ]
    return found


def _cell(host: Plain, cell: int) -> dict[str, Any]:
    """One of two cells: a quarter of its CPUs is for pinned vCPUs, and half of these are taken."""
    threads = host["vcpus"] // 2
    cpus = list(range(cell * threads, (cell + 1) * threads))
    dedicated = cpus[: threads // 4 // 2 * 2]
    memory_mb = host["memory_mb"] // 2
    pages = {"size_kb": 4, "total": memory_mb * 256, "used": memory_mb * 128}
    return {
        "id": cell,
        "socket": cell,
        "memory": memory_mb,
        "memory_usage": memory_mb // 2,
        "cpuset": cpus[len(dedicated) :],
        "pcpuset": dedicated,
        "pinned_cpus": dedicated[: len(dedicated) // 2],
        "siblings": [list(pair) for pair in zip(cpus[::2], cpus[1::2], strict=True)],
        "mempages": [pages],
    }


class Cloud:
    """Hosts that report and clients that ask, in threads, until it is stopped."""

    def __init__(self, client: Client, source: Stream) -> None:
        self._driver = Driver(client, source, SETTINGS)
        self._thread = threading.Thread(target=self._driver.run, name="cloud", daemon=True)

    def start(self) -> None:
        """Announce the hosts and begin to ask, without waiting for either."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let the requests in hand end."""
        self._driver.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
