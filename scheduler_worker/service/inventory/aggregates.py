"""Host aggregates, which belong to no cluster."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_worker.errors import Conflict
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.ports import Guard, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import Fleet

_ROUNDS = 5


class AggregateUpdates:
    """Stores aggregates; ``once`` is the id of a message that every worker gets."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def update(self, aggregates: Sequence[Aggregate], *, once: str | None = None) -> None:
        """Add or replace aggregates by id, but for those that are older than what is known.

        Raises Conflict, StateUnavailable.
        """
        left = tuple(aggregates)
        for _ in range(_ROUNDS):
            self._fleet.refresh_globals()
            newer, transactions = self._newer(left)
            written = self._write(transactions, once)
            if all(written):
                return
            left = tuple(each for each, done in zip(newer, written, strict=True) if not done)
        raise Conflict("Other workers kept changing these aggregates; try again.")

    def delete(self, aggregate_id: int, *, once: str | None = None) -> None:
        """Delete an aggregate; an unknown one is ignored. Raises StateUnavailable."""
        self._write([Transaction([records.gone(f"{records.AGGREGATE}{aggregate_id}")])], once)

    def _newer(
        self, aggregates: Sequence[Aggregate]
    ) -> tuple[Sequence[Aggregate], Sequence[Transaction]]:
        """The aggregates to be stored, and how: each in place of what is known of it now."""
        with self._fleet.globals.lock:
            known, version = self._fleet.globals.aggregates, self._fleet.globals.version
            newer = [each for each in aggregates if not each.is_older(known.get(each.id))]
            puts = map(records.put_aggregate, newer)
            return newer, [Transaction([put], [Guard(put.key, version(put.key))]) for put in puts]

    def _write(self, transactions: Sequence[Transaction], once: str | None) -> Sequence[bool]:
        """Whether each was applied."""
        if not transactions:
            return ()
        written = self._fleet.store.write(self._fleet.globals.scope, transactions, once=once)
        self._fleet.refresh_globals()
        return written.applied
