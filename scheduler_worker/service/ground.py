"""What a request is decided on: a cluster's hosts, and what is promised there already."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, MutableSequence
from typing import Any, NamedTuple

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.service.repetition import promised_rows
from scheduler_worker.service.replica import ClusterReplica


class Ground(NamedTuple):
    """A cluster's table, or what it would be without pending promises; its user has the lock."""

    replica: ClusterReplica
    table: HostTable
    max_promises: int

    def without_pending(self) -> Ground | None:
        """The same hosts if all pending promises were given back; None where there are none."""
        table = self.table.without_pending()
        return None if table is None else self._replace(table=table)

    def promised(self, request: Request) -> Mapping[str, int]:
        """The rows of the instances that have their host already."""
        return promised_rows(self.replica, self.table, request)

    def decide(self, request: Request, pipeline: Pipeline) -> Decision:
        """Choose and consume; instances that have their host keep it.

        Raises:
            NoValidHost: nothing stays consumed.
        """
        decision = pipeline.decide(self.table, request, dice(request), self.promised(request))
        if decision.claims and self.table.num_promises > self.max_promises:
            self.give_up(decision.claims)
            raise NoValidHost(
                f"Cluster {self.replica.scope} has {self.max_promises} promises already, which is "
                "as many as [pending] max_per_cluster allows.",
                decision.diagnosis,
            )
        return decision

    def give_up(self, claims: Iterable[Claim]) -> None:
        """Take claims back; a stored promise that one of them would have replaced stays."""
        for claim in claims:
            before = self.replica.promises.get(claim.id)
            if before is None or (before.is_pending and self.table is not self.replica.table):
                self.table.end_promise(claim.id)
            else:
                self.table.promise(before)


class _Dice:
    """Chance that a recorded request replays; seeded when it is first thrown."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._random: random.Random | None = None

    def randrange(self, start: int, /) -> int:
        return self._seeded().randrange(start)

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        self._seeded().shuffle(x)

    def _seeded(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random


def dice(request: Request) -> _Dice:
    """The request's own chance."""
    return _Dice(request.request_id)
