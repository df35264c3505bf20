"""Databases as a Nova control plane has them, as far as the feed reads them.

The columns and indexes are those of Nova 34's tables that ``docs/nova-cloud.md`` names; columns
that nothing reads are left out, and all strings have one length.
"""

import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    insert,
    make_url,
    text,
    update,
)
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.types import TypeEngine

from scheduler_worker.backends.nova.tables import CELL0
from tests.support.databases import PASSWORD, DatabaseServer

_DRIVERS = {"mariadb": "mysql+pymysql", "postgresql": "postgresql+psycopg"}

api, cell = MetaData(), MetaData()


def _table(name: str, metadata: MetaData, **columns: str) -> Table:
    """A table with an ``id``, and columns named behind their type; ``unique`` ones are strings."""
    named = [
        Column(each, _TYPES[kind], unique=kind == "unique")
        for kind, names in columns.items()
        for each in names.split()
    ]
    return Table(name, metadata, Column("id", Integer, primary_key=True), *named)


def _cell_table(name: str, *, integers: str = "", times: str = "", **columns: str) -> Table:
    times = f"created_at updated_at deleted_at {times}"
    return _table(name, cell, times=times, integers=f"deleted {integers}", **columns)


_TYPES: dict[str, TypeEngine[Any]] = {
    "strings": String(255),
    "unique": String(255),
    "texts": Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"),
    "integers": Integer(),
    "floats": Float(),
    "booleans": Boolean(),
    "times": DateTime(),
}
cell_mappings = _table(
    "cell_mappings",
    api,
    unique="uuid",
    strings="name",
    texts="transport_url database_connection",
    booleans="disabled",
)
host_mappings = _table("host_mappings", api, integers="cell_id", unique="host")
aggregates = _table("aggregates", api, strings="uuid name")
aggregate_hosts = _table("aggregate_hosts", api, strings="host", integers="aggregate_id")
aggregate_metadata = _table("aggregate_metadata", api, strings="key value", integers="aggregate_id")

compute_nodes = _cell_table(
    "compute_nodes",
    unique="uuid",
    strings="host hypervisor_hostname host_ip",
    integers="vcpus memory_mb local_gb vcpus_used memory_mb_used local_gb_used hypervisor_version"
    " free_ram_mb free_disk_gb current_workload running_vms disk_available_least mapped",
    floats="ram_allocation_ratio cpu_allocation_ratio disk_allocation_ratio",
    texts="hypervisor_type cpu_info supported_instances metrics pci_stats extra_resources stats"
    " numa_topology",
)
Index("by_host", compute_nodes.c.host, compute_nodes.c.hypervisor_hostname, compute_nodes.c.deleted)
services = _cell_table(
    "services",
    strings="host binary topic disabled_reason",
    booleans="disabled forced_down",
    times="last_seen_up",
)
instances = _cell_table(
    "instances",
    strings="uuid host node project_id vm_state task_state",
    integers="instance_type_id memory_mb vcpus root_gb ephemeral_gb",
)
Index("by_change", instances.c.updated_at, instances.c.project_id)
Index("by_place", instances.c.host, instances.c.deleted)
instance_system_metadata = _cell_table(
    "instance_system_metadata", strings="instance_uuid key value"
)
Index("by_instance", instance_system_metadata.c.instance_uuid)

CPU_INFO = json.dumps({"arch": "x86_64", "model": "Cascadelake-Server", "vendor": "Intel"})
SUPPORTED = json.dumps([["x86_64", "kvm", "hvm"]])
PCI_STATS = json.dumps({
    "nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova",
    "nova_object.version": "1.1", "nova_object.data": {"objects": [{
        "nova_object.name": "PciDevicePool", "nova_object.namespace": "nova",
        "nova_object.version": "1.1", "nova_object.data": {
            "product_id": "1572", "vendor_id": "8086", "numa_node": 0, "tags": {"k": "v"},
            "count": 4,
        },
    }]},
})  # fmt: skip


def numa_topology(cells: int = 2) -> str:
    """A ``NUMATopology`` as it is in the column: the text of an object primitive."""
    return json.dumps({
        "nova_object.name": "NUMATopology", "nova_object.namespace": "nova",
        "nova_object.version": "1.2", "nova_object.data": {"cells": [{
            "nova_object.name": "NUMACell", "nova_object.namespace": "nova",
            "nova_object.version": "1.5", "nova_object.data": {
                "id": each, "cpuset": list(range(each * 16, (each + 1) * 16)), "pcpuset": [],
                "memory": 32768, "cpu_usage": 0, "memory_usage": 0, "pinned_cpus": [],
                "siblings": [], "mempages": [], "network_metadata": None, "socket": each,
            },
        } for each in range(cells)]},
    })  # fmt: skip


class NovaCloud:
    """The API database and cells on one server; every row is written as Nova's services do."""

    def __init__(self, server: DatabaseServer, cells: int = 1) -> None:
        self.server = server
        self.api_url = self.new_database(api)
        self._api = create_engine(self.api_url)
        self._cells: dict[str, Any] = {}
        self.cell_urls: dict[str, str] = {}
        self._ids: dict[str, int] = {}
        self.cell_ids: dict[str, str] = {}
        self.add_mapping("cell0", "none:///", uuid_of=CELL0)
        for number in range(1, cells + 1):
            self.add_cell(f"cell{number}")

    def new_database(self, schema: MetaData) -> str:
        """A database with this schema; its URL, with the driver that Nova names."""
        url = make_url(self.server.create_database())
        url = url.set(drivername=_DRIVERS[url.get_backend_name()])
        engine = create_engine(url)
        schema.create_all(engine)
        engine.dispose()
        return url.render_as_string(hide_password=False)

    def reader_of(self, url: str) -> str:
        """The same URL with a new account that may only read."""
        name, user = make_url(url).database, f"r{uuid.uuid4().hex[:12]}"
        if url.startswith("mysql"):
            self.server.execute(f"CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'")
            self.server.execute(f"GRANT SELECT ON {name}.* TO {user}@'%'")
        else:
            self.server.execute(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
            engine = create_engine(url)
            with engine.begin() as connection:
                connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}")
            engine.dispose()
        return make_url(url).set(username=user).render_as_string(hide_password=False)

    # What administrators do

    def add_cell(self, name: str) -> None:
        """A cell with a database of its own."""
        url = self.new_database(cell)
        self._cells[name] = create_engine(url)
        self.cell_urls[name] = url
        self.add_mapping(name, url)

    def add_mapping(self, name: str, url: str, *, uuid_of: str | None = None) -> None:
        self.cell_ids[name] = uuid_of or str(uuid.uuid4())
        values = {"uuid": self.cell_ids[name], "name": name, "database_connection": url}
        with self._api.begin() as connection:
            row = connection.execute(insert(cell_mappings).values(disabled=False, **values))
            self._ids[name] = row.inserted_primary_key[0]

    def change_mapping(self, cell_name: str, **values: Any) -> None:
        where = cell_mappings.c.uuid == self.cell_ids[cell_name]
        self._on_api(update(cell_mappings).where(where).values(**values))

    def discover(self, *hosts: str, cell_name: str = "cell1") -> None:
        """Map hosts to a cell."""
        values = [{"cell_id": self._ids[cell_name], "host": host} for host in hosts]
        self._on_api(insert(host_mappings).values(values))

    def aggregate(self, number: int, hosts: Iterable[str], **metadata: str) -> None:
        values = {"id": number, "uuid": str(uuid.uuid4()), "name": f"agg{number}"}
        self._on_api(insert(aggregates).values(**values))
        for host in hosts:
            self._on_api(insert(aggregate_hosts).values(host=host, aggregate_id=number))
        for key, value in metadata.items():
            self._on_api(
                insert(aggregate_metadata).values(aggregate_id=number, key=key, value=value)
            )

    # What computes do

    def add_hosts(self, *hosts: str, cell_name: str = "cell1", **fields: Any) -> None:
        """Computes that are up and discovered, each with 32 CPUs, 64 GiB and 1000 GiB."""
        now = now_utc()
        self._on(cell_name, insert(compute_nodes).values([
            node_values(host) | {"created_at": now, "updated_at": now} | fields for host in hosts
        ]))  # fmt: skip
        self._on(cell_name, insert(services).values([
            {"host": host, "binary": "nova-compute", "topic": "compute", "deleted": 0,
             "disabled": False, "forced_down": False, "created_at": now, "last_seen_up": now}
            for host in hosts
        ]))  # fmt: skip
        self.discover(*hosts, cell_name=cell_name)

    def change_host(self, host: str, *, cell_name: str = "cell1", **fields: Any) -> None:
        where = compute_nodes.c.host == host
        values = {"updated_at": now_utc()} | fields
        self._on(cell_name, update(compute_nodes).where(where).values(**values))

    def remove_host(self, host: str, *, cell_name: str = "cell1") -> None:
        """A soft deletion."""
        values = {"deleted": compute_nodes.c.id, "deleted_at": now_utc()}
        where = compute_nodes.c.host == host
        self._on(cell_name, update(compute_nodes).where(where).values(**values))

    def change_service(self, host: str, *, cell_name: str = "cell1", **fields: Any) -> None:
        self._on(cell_name, update(services).where(services.c.host == host).values(**fields))

    def boot(self, host: str | None, **fields: Any) -> str:
        """An instance on a host: 2 vCPUs, 2 GiB, 20 GiB. Returns its uuid."""
        values = instance_values(host) | fields
        self._on("cell1", insert(instances).values(**values))
        return str(values["uuid"])

    def describe_instance(self, instance: str, **metadata: str) -> None:
        """Its system metadata."""
        values = [{"instance_uuid": instance, "deleted": 0, "key": key, "value": value}
                  for key, value in metadata.items()]  # fmt: skip
        self._on("cell1", insert(instance_system_metadata).values(values))

    def change_instance(self, instance: str, **fields: Any) -> None:
        where = instances.c.uuid == instance
        values = {"updated_at": now_utc()} | fields
        self._on("cell1", update(instances).where(where).values(**values))

    def delete_instance(self, instance: str) -> None:
        """First the change of its state, then a soft deletion, which moves no ``updated_at``."""
        self.change_instance(instance, vm_state="deleted")
        values = {"deleted": instances.c.id, "deleted_at": now_utc()}
        where = instances.c.uuid == instance
        self._on("cell1", update(instances).where(where).values(**values))

    def drop(self, table: str) -> None:
        self._on("cell1", text(f"DROP TABLE {table}"))

    def close(self) -> None:
        for engine in (self._api, *self._cells.values()):
            engine.dispose()

    def _on_api(self, statement: Any) -> None:
        with self._api.begin() as connection:
            connection.execute(statement)

    def _on(self, cell_name: str, statement: Any) -> None:
        with self._cells[cell_name].begin() as connection:
            connection.execute(statement)


def now_utc(ago_s: float = 0.0) -> datetime:
    """The time as Nova's conductors write it."""
    now = datetime.now(UTC) - timedelta(seconds=ago_s)
    return now.replace(tzinfo=None, microsecond=0)


def node_values(host: str) -> dict[str, Any]:
    """The columns of a compute node with nothing used."""
    return {
        "host": host, "uuid": str(uuid.uuid4()), "hypervisor_hostname": f"{host}.example.org",
        "deleted": 0, "vcpus": 32, "memory_mb": 65536, "local_gb": 1000, "vcpus_used": 0,
        "memory_mb_used": 512, "local_gb_used": 0, "free_ram_mb": 65024, "free_disk_gb": None,
        "hypervisor_type": "QEMU", "hypervisor_version": 8002002, "host_ip": "10.0.0.1",
        "cpu_info": CPU_INFO, "supported_instances": SUPPORTED, "metrics": "[]",
        "pci_stats": PCI_STATS, "stats": json.dumps({"num_instances": "3", "io_workload": "0"}),
        "numa_topology": numa_topology(), "cpu_allocation_ratio": 4.0,
        "ram_allocation_ratio": 1.5, "disk_allocation_ratio": 1.0, "disk_available_least": 900,
        "current_workload": 0, "running_vms": 0, "mapped": 1,
    }  # fmt: skip


def instance_values(host: str | None) -> dict[str, Any]:
    """The columns of an active instance."""
    now = now_utc()
    return {
        "uuid": str(uuid.uuid4()), "host": host, "node": host, "vm_state": "active", "deleted": 0,
        "created_at": now, "updated_at": now, "project_id": "p", "instance_type_id": 1,
        "vcpus": 2, "memory_mb": 2048, "root_gb": 20, "ephemeral_gb": 0,
    }  # fmt: skip
