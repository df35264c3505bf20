"""All that operators ask for: each operation is declared once, in the module of its resource."""

from typing import Any

from scheduler_worker.operations import (
    audit,
    balancing,
    clusters,
    decisions,
    hosts,
    policies,
    rehearsals,
    requests,
    reservations,
    tuning,
    units,
    workers,
)
from scheduler_worker.operations.operation import Operation

_RESOURCES = (
    clusters,
    hosts,
    reservations,
    requests,
    decisions,
    policies,
    units,
    tuning,
    balancing,
    workers,
    rehearsals,
    audit,
)
OPERATIONS: tuple[Operation[Any, Any], ...] = tuple(
    var for resource in _RESOURCES for var in vars(resource).values() if isinstance(var, Operation)
)
"""By resource, in the order of the modules."""
