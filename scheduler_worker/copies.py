"""Copies of what workers know: the hosts of a fleet, and decisions that were kept.

They come over the bus, or from a file that was written before, in the form of the shared state: for
programs of the workers' own release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.kept_decisions import DecisionId, DecisionSummary, Details, KeptDecision
from scheduler_worker.operations.clusters import list_clusters
from scheduler_worker.operations.decisions import DecisionsQuery, list_stored_decisions
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.records import RecordsPage, RecordsQuery, list_records
from scheduler_worker.ports import GLOBAL
from scheduler_worker.service.replay.snapshot import Snapshot

_PAGE = 1000
"""Rows that are asked for at a time."""


def snapshot_of(client: SchedulerClient) -> Snapshot:
    """All that decisions are made by, as it is now."""
    shared = client.call(list_records, RecordsQuery())
    now_s, scopes = shared.now_s, {GLOBAL: _encoded(shared)}
    for cluster in client.every(list_clusters, PageQuery(limit=_PAGE)):
        found: dict[str, bytes] = {}
        query = RecordsQuery(cluster=cluster.name)
        while True:
            page = client.call(list_records, query)
            found |= _encoded(page)
            now_s = max(now_s, page.now_s)
            if page.next is None:
                break
            query = RecordsQuery(cluster=cluster.name, marker=page.next)
        scopes[cluster.name] = found
    return Snapshot(now_s, scopes)


def decisions_of(client: SchedulerClient, query: DecisionsQuery) -> Iterator[KeptDecision]:
    """Decisions with their details, the newest first; one whose details are gone has none."""
    for each in client.every(list_stored_decisions, query):
        outline = msgspec.convert(each.outline, DecisionSummary)
        details = None if each.details is None else Details.decoded(each.details.encode())
        yield KeptDecision(DecisionId.parse(each.id), outline, details)


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a file."""

    now_s: float
    scopes: dict[str, dict[str, str]]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """Each further line: a decision."""

    id: str
    outline: DecisionSummary
    details: Details | None


def lines(snapshot: Snapshot, decisions: Iterable[KeptDecision]) -> Iterator[bytes]:
    """The copies as lines of JSON, each with its line feed: the snapshot, then the decisions."""
    scopes = {
        name: {key: value.decode() for key, value in found.items()}
        for name, found in snapshot.scopes.items()
    }
    yield _ENCODER.encode_lines([_Head(snapshot.now_s, scopes)])
    for each in decisions:
        yield _ENCODER.encode_lines([_Line(str(each.id), each.outline, each.details)])


def parsed(found: Iterable[bytes]) -> tuple[Snapshot, list[KeptDecision]]:
    """What such lines say. Raises ValueError, which says which line is wrong."""
    rest = iter(found)
    try:
        head = _HEAD.decode(next(rest, b""))
    except ValueError as error:
        raise ValueError(f"at its beginning: {error!s:.200}") from None
    decisions: list[KeptDecision] = []
    try:
        for each in map(_LINE.decode, rest):
            id = DecisionId.parse(each.id)
            decisions.append(KeptDecision(id, each.outline, each.details))
    except ValueError as error:
        raise ValueError(f"at decision {len(decisions) + 1}: {error!s:.200}") from None
    scopes = {
        name: {key: value.encode() for key, value in some.items()}
        for name, some in head.scopes.items()
    }
    return Snapshot(head.now_s, scopes), decisions


def write(path: Path, snapshot: Snapshot, decisions: Iterable[KeptDecision]) -> None:
    """Write them to a file. Raises ConfigError."""
    draft = path.with_name(f"{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.writelines(lines(snapshot, decisions))
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from None


def read(path: Path) -> tuple[Snapshot, list[KeptDecision]]:
    """What was written. Raises ConfigError, which names the line."""
    try:
        with path.open("rb") as file:
            return parsed(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is no copy, {error}") from None


_ENCODER = msgspec.json.Encoder()
_HEAD, _LINE = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Line)


def _encoded(page: RecordsPage) -> dict[str, bytes]:
    return {key: value.encode() for key, value in page.records.items()}
