"""Writing without the cluster's lock: guarded, and again for those whom somebody overtook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt

from scheduler_worker.errors import Conflict
from scheduler_worker.ports import Observer, Store, Transaction
from scheduler_worker.service.replica import ClusterReplica

T = TypeVar("T")

_ROUNDS = 8


class Plan(NamedTuple):
    """A transaction, and how many promises end by it, and how."""

    transaction: Transaction
    ended: Mapping[str, int] = {}


class Writer:
    """Computes plans on a replica that is current, and writes them."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    def write(
        self,
        replica: ClusterReplica,
        items: Sequence[T],
        plan: Callable[[T, float], Plan | None],
        *,
        once: str | None = None,
    ) -> int:
        """Write the plan of each item, as of now; the answer is the cluster's version afterwards.

        ``plan`` is given an item and the store's time, and is asked again after a lost race; None
        means that there is nothing to do.

        Raises:
            Conflict: every race was lost.
            StateUnavailable: the store cannot be reached.
        """
        left = list(items)

        def attempt() -> bool:
            nonlocal left
            with replica.lock:
                now_s = replica.refresh(self._store).now_s
                plans = [(item, plan(item, now_s)) for item in left]
                left = self._attempt(replica, [(item, each) for item, each in plans if each], once)
            return bool(left)

        try:
            Retrying(stop=stop_after_attempt(_ROUNDS), retry=retry_if_result(bool))(attempt)
        except RetryError:
            raise Conflict(
                f"{len(left)} records of {replica.scope} changed during each of {_ROUNDS} attempts;"
                " try again."
            ) from None
        return replica.seen.version

    def _attempt(
        self, replica: ClusterReplica, writing: Sequence[tuple[T, Plan]], once: str | None
    ) -> list[T]:
        """Write all plans in one call; the items whose plans were not applied."""
        if not writing:
            return []
        transactions = [plan.transaction for _, plan in writing]
        written = self._store.write(replica.scope, transactions, once=once)
        replica.refresh(self._store)
        left: list[T] = []
        ended: Counter[str] = Counter()
        for (item, plan), is_applied in zip(writing, written.applied, strict=True):
            if is_applied:
                ended.update(plan.ended)
            else:
                left.append(item)
        if written.before >= 0:  # else it was written, and told, before
            for how, count in (+ended).items():
                self._observer.promises_ended(replica.scope, how, count)
        return left
