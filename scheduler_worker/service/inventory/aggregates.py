"""Host aggregates, which belong to no cluster."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.ports import Put, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import Fleet


class AggregateUpdates:
    """Stores aggregates; ``once`` is the id of a message that every worker gets."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def update(self, aggregates: Sequence[Aggregate], *, once: str | None = None) -> None:
        """Add or replace aggregates by id. Raises StateUnavailable."""
        self._write([records.put_aggregate(each) for each in aggregates], once)

    def delete(self, aggregate_id: int, *, once: str | None = None) -> None:
        """Delete an aggregate; an unknown one is ignored. Raises StateUnavailable."""
        self._write([records.gone(f"{records.AGGREGATE}{aggregate_id}")], once)

    def _write(self, puts: Sequence[Put], once: str | None) -> None:
        scope = self._fleet.globals.scope
        self._fleet.store.write(scope, [Transaction(puts)], once=once)
        self._fleet.refresh_globals()
