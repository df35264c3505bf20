"""Reads records of decisions: in pages, the newest first, and one by its id."""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.decision_log import DecisionLog, Logged
from scheduler_worker.model.decision_history import (
    DecisionDetails,
    DecisionId,
    DecisionSummary,
    KeptDecision,
    Position,
    Result,
)
from scheduler_worker.ports import GLOBAL
from scheduler_worker.service.decisions.recorder import why_placed

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_EXAMINED = 5_000
"""How many records one call looks at."""
_READ_AT_ONCE = 200
_READ_FIRST = 10


class DecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records; a field that is None admits all. Times are seconds since the epoch."""

    cluster: str | None = None
    instance: str | None = None
    project: str | None = None
    result: Result | None = None
    host: str | None = None
    """One of the chosen hosts."""
    since_s: float | None = None
    until_s: float | None = None
    """Bounds of when they were written; the second is excluded."""
    before: DecisionId | None = None
    """Continues after the record with this id, the last one that the call before looked at."""

    def admits(self, outline: DecisionSummary) -> bool:
        """Whether cluster, project, result and host match a record."""
        return (
            (self.cluster is None or self.cluster in outline.clusters)
            and self.project in {None, outline.project_id}
            and self.result in {None, outline.result}
            and (self.host is None or self.host in outline.hosts)
        )


class DecisionPage(msgspec.Struct, frozen=True):
    """Records without details, and where to continue; None: there are no more."""

    decisions: list[KeptDecision]
    next: DecisionId | None


class KeptDecisions:
    """The records of all workers; every method that reads raises StateUnavailable."""

    def __init__(self, log: DecisionLog, scopes: Callable[[], Sequence[str]]) -> None:
        """``scopes`` returns those with a log: all clusters, and ``@global``."""
        self._log = log
        self.close = log.close
        self._scopes = scopes

    def page(self, query: DecisionQuery, limit: int = DEFAULT_LIMIT) -> DecisionPage:
        """Up to ``limit`` records, the newest first.

        Looks at a bounded number of them, so a page may have fewer, or none, and yet continue.
        """
        # What was decided over several clusters is kept with what belongs to none.
        scopes = {query.cluster, GLOBAL} if query.cluster is not None else set(self._scopes())
        # Most of what is read ahead of many logs would be of no page: their first parts are small.
        first = max(_READ_FIRST, min(_READ_AT_ONCE, limit // max(1, len(scopes))))
        logs = [self._newest_in(scope, query, first) for scope in sorted(scopes)]
        newest = heapq.merge(*logs, key=lambda each: each[0], reverse=True)
        decisions: list[KeptDecision] = []
        last: DecisionId | None = None
        for last, logged in islice(newest, MAX_EXAMINED):
            outline = _outline(logged)
            if query.admits(outline):
                decisions.append(KeptDecision(last, _with_reason(outline)))
            if len(decisions) == limit:
                break
        return DecisionPage(decisions, None if next(newest, None) is None else last)

    def get(self, id: DecisionId) -> KeptDecision | None:
        """A record with its details; None: there is none, or it is not kept any more."""
        record = self._log.get(id.scope, id.position)
        if record is None:
            return None
        logged, details = record
        return KeptDecision(id, _with_reason(_outline(logged)), DecisionDetails.decoded(details))

    def with_details(self, query: DecisionQuery) -> Iterator[KeptDecision]:
        """All records with their details, the newest first; one whose details are gone has none."""
        while True:
            page = self.page(query, MAX_LIMIT)
            stored = self.stored_details([decision.id for decision in page.decisions])
            for decision, some in zip(page.decisions, stored, strict=True):
                details = None if some is None else DecisionDetails.decoded(some)
                yield decision._replace(details=details)
            if page.next is None:
                return
            query = structs.replace(query, before=page.next)

    def stored_details(self, ids: Sequence[DecisionId]) -> list[bytes | None]:
        """The details of records in their stored form; None: they are not kept any more."""
        details_of: dict[DecisionId, bytes | None] = {}
        for scope in {decision_id.scope for decision_id in ids}:
            some = [decision_id for decision_id in ids if decision_id.scope == scope]
            details = self._log.details(scope, [decision_id.position for decision_id in some])
            details_of |= dict(zip(some, details, strict=True))
        return [details_of[decision_id] for decision_id in ids]

    def _newest_in(
        self, scope: str, query: DecisionQuery, first: int
    ) -> Iterator[tuple[DecisionId, Logged]]:
        before = _before(scope, query)
        for logged in self._read(scope, query.instance, before, first):
            if query.since_s is not None and logged.position.ms < 1000 * query.since_s:
                return
            yield DecisionId(logged.position, scope), logged

    def _read(
        self, scope: str, instance: str | None, before: Position | None, first: int
    ) -> Iterator[Logged]:
        if instance is not None:
            records = self._log.of_instance(scope, instance)
            yield from (record for record in records if before is None or record.position < before)
            return
        count = first
        while page := self._log.newest(scope, before=before, count=count):
            yield from page
            before = page[-1].position
            count = min(2 * count, _READ_AT_ONCE)


def _before(scope: str, query: DecisionQuery) -> Position | None:
    """The position in a scope's log before which the requested decisions come."""
    bounds = []
    if query.until_s is not None:
        bounds.append(Position(math.ceil(1000 * query.until_s), 0))
    if query.before is not None:
        (ms, number), last_scope = query.before
        # At one position the scope that is later in order is the newer one.
        bounds.append(Position(ms, number + 1 if scope < last_scope else number))
    return min(bounds, default=None)


def _outline(logged: Logged) -> DecisionSummary:
    return structs.replace(_read_outline(logged.outline), instances=logged.instances)


def _with_reason(outline: DecisionSummary) -> DecisionSummary:
    if outline.reason or outline.result != "placed":
        return outline
    return structs.replace(outline, reason=why_placed(outline.hosts, outline.lead), lead=None)


_read_outline = json_reader(DecisionSummary)
