"""The result of a rehearsal: how often it came to the same, what changed, how full hosts became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from scheduler_worker.model.rehearsals import (
    BeforeAfter,
    Change,
    ChangedDecision,
    PackingChange,
    RehearsalSummary,
)
from scheduler_worker.service.replay.replay import Rehearsed


def summarized(
    found: Sequence[Rehearsed],
    left_out: Mapping[str, int],
    packing: PackingChange,
    *,
    most: int | None = None,
) -> RehearsalSummary:
    """The summary of rehearsed decisions; ``most`` bounds the changes of each kind, None: all."""
    counts = Counter(each.change for each in found)
    placed_before = sum(bool(each.decision.outline.hosts) for each in found)
    placed = sum(bool(each.hosts) for each in found)
    return RehearsalSummary(
        rehearsed=len(found),
        left_out=dict(left_out),
        placed=BeforeAfter(placed_before, placed),
        refused=BeforeAfter(len(found) - placed_before, len(found) - placed),
        counts={change: counts[change] for change in get_args(Change)},
        changes=list(_first_changes(found, most)),
        packing=packing,
    )


def _first_changes(found: Iterable[Rehearsed], most: int | None) -> Iterator[ChangedDecision]:
    seen: Counter[Change] = Counter()
    for each in found:
        seen[each.change] += 1
        if each.change == "same" or (most is not None and seen[each.change] > most):
            continue
        outline = each.decision.outline
        yield ChangedDecision(
            id=str(each.decision.id),
            change=each.change,
            instances=outline.instances,
            flavor=outline.flavor,
            hosts_before=outline.hosts,
            hosts=each.hosts,
            reason=each.reason,
        )
