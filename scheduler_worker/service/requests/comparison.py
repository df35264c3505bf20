"""Compares where a request's instances got to with where they would have been put. Pure."""

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from scheduler_worker.model.decisions import Explanation
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.pipeline import Request

_SHOWN_WEIGHERS = 3
_EQUAL = 1e-9
"""Weights that differ by less are the same number, added up in another order."""


class DryRunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How copies of requests are compared with what another scheduler did; times in seconds."""

    enabled: Annotated[bool, Opt()] = False
    """Whether this worker serves nobody, and decides on copies of the requests that nova-scheduler
    serves on [rpc] topic; it logs where Nova put an instance elsewhere, and why. Reserves and
    claims nothing. Needs [nova_feed] enabled, and RabbitMQ."""
    wait_s: Annotated[float, Opt(min=1, max=3600)] = 120.0
    """Seconds within which an instance has to show on a host in Nova's databases to be compared."""
    max_requests: Annotated[int, Opt(min=1, max=100_000)] = 1000
    """Requests that wait for that, at most, and messages in the queue of copies. Beyond these the
    oldest are dropped, and counted."""
    summary_interval_s: Annotated[float, Opt(min=1, max=86_400)] = 60.0
    """Seconds between two lines of the log with how many requests were decided alike."""
    subset_size: int = 1
    """The number of best hosts among which a scheduler chooses at random."""


class Comparison(enum.StrEnum):
    """How an instance of a copied request compares."""

    SAME = "same"
    AS_GOOD = "as_good"
    """Another host, of the same weight here, or among hosts of which one is taken at random."""
    DIFFERS = "differs"
    OVERLAPPED = "overlapped"
    """Another host that suits here, while it was unknown where earlier instances would get to."""
    REFUSED_HERE = "refused_here"
    NOT_SEEN = "not_seen"
    """It showed on no host in time: it was refused, failed, was deleted, or takes longer."""
    UNDECIDED = "undecided"
    """A whole request that was not decided here: hosts were not all known, or it cannot be read."""
    DROPPED = "dropped"
    """It was not waited for, since there were too many."""


class Difference(NamedTuple):
    """One instance, and why it compares so; ``why`` is empty where nothing is to be said."""

    instance: str
    result: Comparison
    why: str = ""


class VerdictRecord(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a verdict."""

    weight: float | None
    """None: rejected."""
    reason: str
    """Why it was rejected."""
    parts: tuple[float, ...] = ()
    rank: int = 0
    """From 0 for the best."""


class Expectation(msgspec.Struct, frozen=True):
    """A request that was decided here, as it is kept until its instances show."""

    request: Request
    hosts: tuple[str, ...]
    known: dict[str, VerdictRecord]
    """Host -> its verdict, for the best and as many rejected ones as were asked for."""
    weighers: tuple[str, ...]
    refusal: str
    before: frozenset[tuple[str, str]]
    """Instance and host that do not count: the instances are moved from there."""
    due_s: float
    is_overlapped: bool


def known_of(explanation: Explanation) -> dict[str, VerdictRecord]:
    """Host -> what is kept of its verdict."""
    by_host: dict[str, VerdictRecord] = {}
    for diagnosis in explanation.clusters.values():
        for rank, verdict in enumerate(diagnosis.verdicts):
            if verdict.weight is None:
                known = VerdictRecord(None, f"{verdict.rejected_by}: {verdict.reason}")
            else:
                parts = tuple(part.product or 0.0 for part in verdict.weights)
                known = VerdictRecord(verdict.weight, "", parts, rank)
            by_host.setdefault(verdict.host, known)
    return by_host


def weighers_of(explanation: Explanation) -> tuple[str, ...]:
    """The names of the parts of :class:`VerdictRecord`."""
    for diagnosis in explanation.clusters.values():
        for verdict in diagnosis.verdicts:
            if verdict.weights:
                return tuple(part.name for part in verdict.weights)
    return ()


def compared(
    expected: Expectation,
    current_hosts: Mapping[str, str | None],
    *,
    subset_size: int,
    look_up: Callable[[str], VerdictRecord | None],
) -> list[Difference]:
    """Compare each instance; ``current_hosts`` is where it is now, None: nowhere.

    Instances of one request are alike: any of them may be on any of its hosts. ``look_up`` judges
    by now a host of which nothing was kept.
    """
    remaining = Counter(expected.hosts)
    differences, elsewhere = [], list[tuple[str, str]]()
    for instance, host in current_hosts.items():
        if host is None:
            differences.append(Difference(instance, Comparison.NOT_SEEN))
        elif remaining[host] > 0:
            remaining[host] -= 1
            differences.append(Difference(instance, Comparison.SAME))
        else:
            elsewhere.append((instance, host))
    own = list(remaining.elements())
    for instance, host in elsewhere:
        known = expected.known.get(host)
        there, note = (known, "") if known is not None else (look_up(host), " by now")
        if own:
            result, why = _judged(expected, own.pop(0), host, there, note, subset_size)
        else:
            result, why = Comparison.REFUSED_HERE, _refused(expected, host, there, note)
        differences.append(Difference(instance, result, why))
    return differences


def _judged(
    expected: Expectation,
    own: str,
    actual: str,
    there: VerdictRecord | None,
    note: str,
    subset_size: int,
) -> tuple[Comparison, str]:
    """Compare two hosts; the note says that the verdict on the actual one is of another time."""
    here = expected.known.get(own)
    both = f"it is on {actual}, and would be on {own} here"
    if there is None:
        return Comparison.DIFFERS, f"{both}: {actual} is not known here"
    if there.weight is None:
        return Comparison.DIFFERS, f"{both}: {actual} is rejected here{note} by {there.reason}"
    if here is None or here.weight is None:
        return Comparison.DIFFERS, both
    is_random = not note and there.rank < subset_size
    if is_random or abs(here.weight - there.weight) <= _EQUAL:
        return Comparison.AS_GOOD, ""
    why = (
        f"{both}: {actual} weighs {there.weight:.4g}{note}, {own} {here.weight:.4g}"
        f"{_parts(expected.weighers, here, there)}"
    )
    return (Comparison.OVERLAPPED if expected.is_overlapped else Comparison.DIFFERS), why


def _refused(expected: Expectation, actual: str, there: VerdictRecord | None, note: str) -> str:
    if there is None:
        reason = f"{actual} is not known here"
    elif there.weight is None:
        reason = f"{actual} is rejected{note} by {there.reason}"
    else:
        reason = expected.refusal or "there was no room for all of the request's instances"
    return f"it is on {actual}, and is refused here: {reason}"


def _parts(weighers: Sequence[str], here: VerdictRecord, there: VerdictRecord) -> str:
    """The weighers that made the difference, the greatest first."""
    gaps = sorted(
        (
            (own - actual, name)
            for name, own, actual in zip(weighers, here.parts, there.parts, strict=False)
            if abs(own - actual) > _EQUAL
        ),
        key=lambda pair: -abs(pair[0]),
    )
    shown = ", ".join(f"{name} {gap:+.4g}" for gap, name in gaps[:_SHOWN_WEIGHERS])
    return f" ({shown})" if shown else ""
