"""Hosts as rows of Nova's and Placement's databases: as many as one likes, without computes."""

import contextlib
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nova_cloud.cloud import Cloud
from nova_cloud.configuration import Endpoints
from sqlalchemy import Engine, MetaData, Table, create_engine, insert, select, text

from tests.support.nova_databases import node_values, now_utc

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "samples" / "nova"
HEARTBEAT_S = 10.0
CHUNK = 500
CPUS, MEMORY_MB, DISK_GB = 64, 512 * 1024, 20_000
"""Of a host. Its CPUs are given four times."""
CPU_RATIO = 4.0
FEATURES = 110
"""Of a CPU, as libvirt reports them."""
TRAITS = 40
"""Of a host in Placement."""
VERSION = 10_000
"""Of a compute service: none is too old for any Nova."""


class Rows:
    """The three databases of a cloud whose servers run."""

    def __init__(self, cloud: Cloud) -> None:
        urls = Endpoints(broker="", database=cloud.database.url, placement="", stub="")
        self._api, self._cell, self._placement = (
            create_engine(urls.database_of(name)) for name in ("nova_api", "nova", "placement")
        )
        self.hosts = 0

    def grow(self, hosts: int) -> None:
        """Add hosts until there are so many."""
        names = [f"cmp{number:05d}" for number in range(self.hosts, hosts)]
        for at in range(0, len(names), CHUNK):
            self._add(names[at : at + CHUNK])
        self.hosts = hosts

    def forget_claims(self) -> None:
        """Delete all allocations and their consumers."""
        _run(self._placement, "DELETE FROM allocations")
        _run(self._placement, "DELETE FROM consumers")

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Inside, all compute services have heartbeats."""
        stopping = threading.Event()
        self._beat()

        def beat() -> None:
            while not stopping.wait(HEARTBEAT_S):
                self._beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def close(self) -> None:
        for each in (self._api, self._cell, self._placement):
            each.dispose()

    def _beat(self) -> None:
        _run(self._cell, "UPDATE services SET last_seen_up = UTC_TIMESTAMP()")

    def _add(self, names: Sequence[str]) -> None:
        nodes = [_node(name) for name in names]
        self._insert(self._cell, "compute_nodes", nodes)
        self._insert(self._cell, "services", [_service(name) for name in names])
        cell = self._only(self._api, "SELECT id FROM cell_mappings WHERE name = 'cell1'")
        mapped = [{"cell_id": cell[0], "host": name} for name in names]
        self._insert(self._api, "host_mappings", mapped)
        self._add_providers(nodes)

    def _add_providers(self, nodes: Sequence[dict[str, Any]]) -> None:
        """What a compute registers: a provider that is its own root, inventories and traits."""
        place = self._placement
        self._insert(
            place,
            "resource_providers",
            [
                {"uuid": node["uuid"], "name": node["host"], "generation": 3, **_times()}
                for node in nodes
            ],
        )
        _run(place, "UPDATE resource_providers SET root_provider_id = id")
        providers = _table(place, "resource_providers")
        wanted = providers.c.uuid.in_([node["uuid"] for node in nodes])
        with place.connect() as connection:
            ids = connection.execute(select(providers.c.id).where(wanted)).scalars().all()
            numbers = connection.execute(text("SELECT name, id FROM resource_classes"))
            classes = {row.name: row.id for row in numbers}
        inventories = [
            {
                "resource_provider_id": each,
                "resource_class_id": classes[name],
                **inventory,
                **_times(),
            }
            for each in ids
            for name, inventory in _INVENTORIES.items()
        ]
        self._insert(place, "inventories", inventories)
        traits = self._only(place, _TRAITS)[:TRAITS]
        self._insert(
            place,
            "resource_provider_traits",
            [
                {"resource_provider_id": each, "trait_id": trait, **_times()}
                for each in ids
                for trait in traits
            ],
        )

    def _only(self, engine: Engine, statement: str) -> list[int]:
        with engine.connect() as connection:
            return [row[0] for row in connection.execute(text(statement))]

    def _insert(self, engine: Engine, name: str, rows: Sequence[dict[str, Any]]) -> None:
        table = _table(engine, name)
        with engine.begin() as connection:
            connection.execute(insert(table), list(rows))


def _table(engine: Engine, name: str) -> Table:
    return Table(name, MetaData(), autoload_with=engine)


def _run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def _node(host: str) -> dict[str, Any]:
    """A compute node, some 6 KB, as libvirt's driver reports them."""
    features = [f"feature{number}" for number in range(FEATURES)]
    cpu_info = {"arch": "x86_64", "model": "Cascadelake-Server", "features": features}
    own = {
        "vcpus": CPUS,
        "memory_mb": MEMORY_MB,
        "free_ram_mb": MEMORY_MB - 512,
        "local_gb": DISK_GB,
        "free_disk_gb": DISK_GB,
        "disk_available_least": DISK_GB,
        "cpu_allocation_ratio": CPU_RATIO,
        "ram_allocation_ratio": 1.0,
        "cpu_info": json.dumps(cpu_info),
        "numa_topology": (SAMPLES / "numa_topology_host.json").read_text(),
    }
    return node_values(host) | own | _times()


def _service(host: str) -> dict[str, Any]:
    now = now_utc()
    return {
        "uuid": str(uuid.uuid4()),
        "host": host,
        "binary": "nova-compute",
        "topic": "compute",
        "report_count": 1,
        "disabled": False,
        "forced_down": False,
        "deleted": 0,
        "version": VERSION,
        "created_at": now,
        "last_seen_up": now,
    }


def _times() -> dict[str, Any]:
    """Placement fails on rows without them."""
    now = now_utc()
    return {"created_at": now, "updated_at": now}


def _inventory(total: int, ratio: float, reserved: int = 0) -> dict[str, Any]:
    units = {"min_unit": 1, "max_unit": total, "step_size": 1}
    return {"total": total, "reserved": reserved, "allocation_ratio": ratio, **units}


_TRAITS = (
    "SELECT id FROM traits WHERE name = 'OWNER_NOVA' OR name LIKE 'HW_CPU_X86_%' ORDER BY name DESC"
)
"""Nova asks for hosts of its own only."""
_INVENTORIES = {
    "VCPU": _inventory(CPUS, CPU_RATIO),
    "MEMORY_MB": _inventory(MEMORY_MB, 1.0, reserved=512),
    "DISK_GB": _inventory(DISK_GB, 1.0),
}
