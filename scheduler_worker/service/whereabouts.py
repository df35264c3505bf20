"""In which cluster an instance is being decided, for requests that may go to any of several.

A cluster's lock guards its own promises only: two copies of a request could get a host each, in
different clusters. So whoever holds a cluster's lock and is about to decide an instance there says
so first, in a scope that belongs to no cluster. It may say so

* if nobody has said anything,
* if the instance was said to be in that cluster already,
* if it was the last to say anything itself, and was refused there under a hold that stood.

Else another copy may have a host where the instance was said to be, and it must look there first.
Each time it is said the record gets a new version. So nobody leads an instance away from a cluster
where another copy is being decided; and who lost its hold meanwhile cannot commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scheduler_worker.ports import Guard, Store, Transaction, Written
from scheduler_worker.service import records
from scheduler_worker.service.replica import Replica
from scheduler_worker.service.trail import Trail

SCOPE = "@whereabouts"


class Elsewhere(Exception):
    """The request cannot be decided here: it has to look once more where its instances are."""


class Wish(NamedTuple):
    """A request that is about to decide instances, each in a cluster."""

    trail: Trail
    homes: Mapping[str, str]
    """Instance -> cluster."""


class Whereabouts(Replica):
    """What was said of instances a short while ago, as this process knows it."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self._homes: dict[str, str] = {}

    def take(self, key: str, version: int, value: bytes | None) -> None:
        uuid = key.removeprefix(records.HOME)
        if value is None:
            self._homes.pop(uuid, None)
        else:
            self._homes[uuid] = value.decode()

    def said_by_others(
        self, uuids: Collection[str], claimed: Mapping[str, int] | None = None
    ) -> dict[str, str]:
        """Instance -> cluster, less what the asker said itself at these versions."""
        mine = claimed or {}
        with self.lock:
            return {
                uuid: self._homes[uuid]
                for uuid in uuids
                if uuid in self._homes and self.version(records.HOME + uuid) != mine.get(uuid)
            }

    def ask(self, store: Store, trail: Trail) -> dict[str, str]:
        """What others say of the request's instances now. Raises StateUnavailable."""
        with self.lock:
            self.refresh(store)
            return self.said_by_others(trail.request.instance_uuids, trail.claimed)

    def claim(self, store: Store, wishes: Sequence[Wish], *, until_s: float) -> list[bool]:
        """Say where instances are decided; which of the wishes may do so.

        The callers hold the locks of the clusters. What is said expires ``until_s`` of the
        store's clock. Raises StateUnavailable.
        """
        may = self._claim(store, wishes, until_s)
        if not all(may):
            with self.lock:
                self.refresh(store)
            left = [wish for wish, is_said in zip(wishes, may, strict=True) if not is_said]
            again = iter(self._claim(store, left, until_s))
            may = [is_said or next(again) for is_said in may]
        return may

    def _claim(self, store: Store, wishes: Sequence[Wish], until_s: float) -> list[bool]:
        """By what this process knows; if it does not know the latest, nothing is written."""
        with self.lock:
            plans = [self._plan(wish, until_s) for wish in wishes]
        writing = [plan for plan in plans if plan]
        written = store.write(self.scope, writing) if writing else Written(0, ())
        applied = iter(written.applied)
        may = [plan is not None and next(applied) for plan in plans]
        for wish, is_said in zip(wishes, may, strict=True):
            if is_said:
                wish.trail.claimed.update(dict.fromkeys(wish.homes, written.version))
        return may

    def _plan(self, wish: Wish, until_s: float) -> Transaction | None:
        said = self.said_by_others(wish.homes, wish.trail.claimed)
        if any(wish.homes[uuid] != home for uuid, home in said.items()):
            return None
        puts = [records.put_home(uuid, home, until_s) for uuid, home in wish.homes.items()]
        return Transaction(puts, [Guard(put.key, self.version(put.key)) for put in puts])
