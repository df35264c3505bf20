"""The columns of Nova's tables that are read.

Times in them are naive and in UTC. A row with ``deleted`` other than 0 was removed.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Boolean, DateTime, Float, Integer, String, TableClause, column, table
from sqlalchemy.types import TypeEngine

CELL0 = "00000000-0000-0000-0000-000000000000"
"""The cell of servers that were never placed; it has no hosts."""


def _table(name: str, **kinds: str) -> TableClause:
    """A table; each keyword is a type and its value the names of columns of that type."""
    words = ((word, kind) for kind, names in kinds.items() for word in names.split())
    return table(name, *(column(word, _TYPES[kind]) for word, kind in words))


_TYPES: dict[str, TypeEngine[Any]] = {
    "integer": Integer(),
    "text": String(),
    "number": Float(),
    "time": DateTime(),
    "flag": Boolean(),
}

# The API database

cell_mappings = _table(
    "cell_mappings", integer="id", text="uuid name database_connection", flag="disabled"
)
host_mappings = _table("host_mappings", integer="cell_id", text="host")
aggregates = _table("aggregates", integer="id", text="uuid name")
aggregate_hosts = _table("aggregate_hosts", integer="aggregate_id", text="host")
aggregate_metadata = _table("aggregate_metadata", integer="aggregate_id", text="key value")

# A cell's database

compute_nodes = _table(
    "compute_nodes",
    time="created_at updated_at",
    integer="deleted vcpus memory_mb local_gb vcpus_used memory_mb_used local_gb_used "
    "hypervisor_version free_ram_mb free_disk_gb disk_available_least",
    text="uuid host hypervisor_hostname hypervisor_type host_ip cpu_info supported_instances "
    "metrics pci_stats stats numa_topology",
    number="cpu_allocation_ratio ram_allocation_ratio disk_allocation_ratio",
)
services = _table(
    "services",
    time="created_at last_seen_up",
    integer="deleted",
    text="host binary disabled_reason",
    flag="disabled forced_down",
)
instances = _table(
    "instances",
    time="updated_at deleted_at",
    integer="deleted instance_type_id memory_mb vcpus root_gb ephemeral_gb",
    text="uuid host node project_id vm_state task_state",
)

instance_system_metadata = _table(
    "instance_system_metadata", integer="deleted", text="instance_uuid key value"
)

CHECKED = {
    "api": (cell_mappings, host_mappings, aggregates, aggregate_hosts, aggregate_metadata),
    "cell": (compute_nodes, services, instances, instance_system_metadata),
}
"""The tables that an account must be able to read, by kind of database."""


def seconds(moment: datetime | None) -> float:
    """A time as seconds since the epoch; 0 for none."""
    return 0.0 if moment is None else moment.replace(tzinfo=UTC).timestamp()


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as the tables have it, in whole seconds."""
    return datetime.fromtimestamp(max(0.0, seconds), UTC).replace(tzinfo=None, microsecond=0)
