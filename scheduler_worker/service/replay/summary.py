"""The result of a rehearsal: how often it came to the same, what changed, how full hosts became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import msgspec

from scheduler_worker.service.replay.packing import Packing
from scheduler_worker.service.replay.replay import Change, Rehearsed


class BeforeAfter(msgspec.Struct, frozen=True):
    """A number of decisions, as they were made and as they were rehearsed."""

    before: int
    after: int


class ChangedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that came out otherwise."""

    id: str
    change: Change
    instances: tuple[str, ...]
    flavor: str | None
    hosts_before: tuple[str, ...]
    """Empty: it was refused."""
    hosts: tuple[str, ...]
    """Empty: it would be refused."""
    reason: str | None
    """Why it would be refused."""


class PackingChange(msgspec.Struct, frozen=True):
    """The use of each cluster's hosts, by name, before and after."""

    before: list[Packing]
    after: list[Packing]


class RehearsalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all decisions together."""

    rehearsed: int
    left_out: dict[str, int]
    """Why decisions were not rehearsed -> how many."""
    placed: BeforeAfter
    refused: BeforeAfter
    counts: dict[Change, int]
    """How many decisions came out the same, and how many in each other way."""
    changes: list[ChangedDecision]
    """In the order of the decisions; as many of each kind as were wanted."""
    packing: PackingChange


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
