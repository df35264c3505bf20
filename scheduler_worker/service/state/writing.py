"""Compare-and-set writes without the cluster's lock, retried on version conflict."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt

from scheduler_worker import events
from scheduler_worker.errors import Conflict
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Store, Transaction
from scheduler_worker.service.state.replica import ClusterReplica

T = TypeVar("T")

_MAX_ATTEMPTS = 8


class WritePlan(NamedTuple):
    """A transaction, and how many reservations end by it in which way."""

    transaction: Transaction
    ended: Mapping[str, int] = {}
    """``how`` of :meth:`Observer.reservations_ended` -> count."""


class Writer:
    """Plans writes on a current replica, and applies them."""

    def __init__(
        self, store: Store, observer: Observer, check: Callable[[], object] = lambda: None
    ) -> None:
        """``check`` is called before each plan is made; what it raises ends the write."""
        self._store = store
        self._observer = observer
        self._check = check

    def write(
        self,
        replica: ClusterReplica,
        items: Sequence[T],
        plan: Callable[[T, float], WritePlan | None],
        *,
        is_current: bool = False,
    ) -> int:
        """Write the plan of each item; returns the cluster's version afterwards.

        ``plan`` gets an item and the store's time, and is called again after a version conflict;
        it returns None if there is nothing to write. A caller that has just read the cluster passes
        ``is_current`` and saves a read: the guards find out what it missed.

        Raises:
            Conflict: there was a version conflict in every attempt.
            StateUnavailable: the store cannot be reached.
        """
        remaining = list(items)
        looks = not is_current
        version = 0

        def attempt() -> bool:
            nonlocal remaining, looks, version
            with replica.lock:
                now_s = replica.refresh(self._store) if looks else replica.table.now_s
                # After a conflict what the caller has read is outdated.
                looks = True
                self._check()
                plans = [(item, plan(item, now_s)) for item in remaining]
                writing = [(item, each) for item, each in plans if each]
                remaining, written = self._attempt(replica, writing, now_s)
                version = max(written, replica.seen.version)
            return bool(remaining)

        try:
            # At once: a conflict means that somebody else has got on.
            Retrying(stop=stop_after_attempt(_MAX_ATTEMPTS), retry=retry_if_result(bool))(attempt)
        except RetryError:
            raise Conflict(
                f"{len(remaining)} records of {replica.scope} changed during each of "
                f"{_MAX_ATTEMPTS} attempts; try again."
            ) from None
        return version

    def _attempt(
        self, replica: ClusterReplica, writing: Sequence[tuple[T, WritePlan]], now_s: float
    ) -> tuple[list[T], int]:
        """Write all plans in one call; returns the items not applied, and the version."""
        if not writing:
            return [], 0
        transactions = [plan.transaction for _, plan in writing]
        written = self._store.write(replica.scope, transactions)
        replica.apply_written(transactions, written, now_s)
        remaining: list[T] = []
        ended: Counter[str] = Counter()
        for (item, plan), is_applied in zip(writing, written.applied, strict=True):
            if is_applied:
                ended.update(plan.ended)
            else:
                remaining.append(item)
        for how, count in (+ended).items():
            self._observer.count(events.RESERVATIONS_ENDED, how, by=count)
        return remaining, written.version
