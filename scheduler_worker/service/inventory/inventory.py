"""The inventory: hosts, instances and aggregates as they are reported, and ends of reservations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.service.inventory.aggregates import AggregateUpdates
from scheduler_worker.service.inventory.instances import InstanceAnnouncements
from scheduler_worker.service.inventory.removal import HostRemoval
from scheduler_worker.service.inventory.reports import DefaultRatios, HostReports
from scheduler_worker.service.inventory.reservation_ends import ReservationEnds
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.state.writing import Writer

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class Inventory:
    """The use cases of the inventory, which share one writer.

    ``clusters`` are those that reports may name; none: all. The observer counts each use case that
    ends in StateUnavailable.
    """

    def __init__(
        self,
        *,
        fleet: Fleet,
        ratios: DefaultRatios,
        reservation_ttl_s: float,
        remember_answers_s: float,
        clusters: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> None:
        observer = observer or Observer()
        writer = Writer(fleet.store, observer)
        moves = Moves(fleet, observer, remember_answers_s=remember_answers_s)
        self._observer = observer
        reports = HostReports(
            fleet=fleet,
            writer=writer,
            moves=moves,
            ratios=ratios,
            reservation_ttl_s=reservation_ttl_s,
            remember_answers_s=remember_answers_s,
            clusters=clusters,
        )
        ends = ReservationEnds(
            fleet,
            writer,
            moves,
            reservation_ttl_s=reservation_ttl_s,
            remember_answers_s=remember_answers_s,
        )
        instances = InstanceAnnouncements(fleet, writer, moves)
        aggregates = AggregateUpdates(fleet)
        self.update_hosts = self._observed(reports.update)
        self.news = reports.news
        self.remove_hosts = self._observed(HostRemoval(fleet, writer, moves).remove)
        self.confirm = self._observed(ends.confirm)
        self.release = self._observed(ends.release)
        self.release_one = self._observed(ends.release_one)
        self.update_instances = self._observed(instances.update)
        self.delete_instance = self._observed(instances.delete)
        self.sync_instances = self._observed(instances.sync)
        self.update_aggregates = self._observed(aggregates.update)
        self.delete_aggregate = self._observed(aggregates.delete)

    def _observed(self, use_case: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
        @wraps(use_case)
        def observed(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
            try:
                return use_case(*args, **kwargs)
            except StateUnavailable:
                self._observer.count(events.STATE_ERRORS)
                raise

        return observed
