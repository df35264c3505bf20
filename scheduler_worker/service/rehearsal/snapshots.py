"""Copies of what decisions are made by, and of decisions that were kept; also in a file.

Records have the form of the shared state, so only programs of one release read a copy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import nsmallest
from pathlib import Path

import msgspec

from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.decision_history import (
    DecisionDetails,
    DecisionId,
    DecisionSummary,
    KeptDecision,
)
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.rehearsals import RecordsPage
from scheduler_worker.ports import GLOBAL, Put, Store, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_WRITTEN_AT_ONCE = 1000
_COPIED = records.HOST, records.INSTANCES, records.RESERVATION, records.POLICY
PAGE = 5000
"""Records that are copied at a time."""

ReadPage = Callable[[str | None, str | None], RecordsPage]
"""Reads records of a cluster, None: of no cluster, after a key, None: the first."""


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records of each scope by their keys, as they were at ``now_s`` of the store's clock."""

    now_s: float
    scopes: dict[str, dict[str, str]]

    @property
    def clusters(self) -> dict[str, dict[str, str]]:
        """The scopes but the global one."""
        return {name: by_key for name, by_key in self.scopes.items() if name != GLOBAL}

    def having(self, changes: Iterable[tuple[str, Put]]) -> "Snapshot":
        """A copy in which these records, each of a scope, are stored or deleted."""
        scopes = {name: dict(by_key) for name, by_key in self.scopes.items()}
        for scope, put in changes:
            if put.value is None:
                del scopes[scope][put.key]
            else:
                scopes[scope][put.key] = put.value.decode()
        return Snapshot(self.now_s, scopes)

    def write_to(self, store: Store) -> None:
        """Write all of it to a store; nothing in it expires."""
        for scope, by_key in self.scopes.items():
            puts = [Put(key, value.encode()) for key, value in by_key.items()]
            for at in range(0, len(puts), _WRITTEN_AT_ONCE):
                store.write(scope, [Transaction(puts[at : at + _WRITTEN_AT_ONCE])])


def snapshot_of(fleet: Fleet) -> Snapshot:
    """All that this process knows. Raises StateUnavailable."""
    return assembled(partial(page_of, fleet))


def assembled(read: ReadPage, say: Callable[[int, int, int], None] = lambda *_: None) -> Snapshot:
    """All scopes, page by page, so that no decision waits for long; raises what ``read`` does.

    ``say`` hears of how many clusters, of how many, all was read, and how many records.
    """
    shared = read(None, None)
    pages = {GLOBAL: [shared]}
    names = [key for key in shared.records if key.startswith(records.CLUSTER)]
    count = 0
    for done, name in enumerate(key.removeprefix(records.CLUSTER) for key in names):
        pages[name] = []
        marker: str | None = None
        while not pages[name] or marker is not None:
            page = read(name, marker)
            pages[name].append(page)
            marker = page.next
            count += len(page.records)
            say(done + (marker is None), len(names), count)
    return Snapshot(
        max(page.now_s for scope_pages in pages.values() for page in scope_pages),
        {
            name: {key: value for page in scope_pages for key, value in page.records.items()}
            for name, scope_pages in pages.items()
        },
    )


def page_of(
    fleet: Fleet, cluster: str | None, after: str | None = None, limit: int = PAGE
) -> RecordsPage:
    """What decisions in a cluster are made by: up to ``limit`` records, in the order of keys.

    Answers to earlier requests are left out, and hosts on their way to another cluster. Of no
    cluster are aggregates, the names of clusters and the enabled units. Raises StateUnavailable.
    """
    if cluster is None:
        shared = fleet.globals
        with shared.reading(fleet.store) as now_s:
            puts = [
                *map(records.put_aggregate, shared.aggregates.values()),
                *(records.put_key(records.CLUSTER + name) for name in shared.names),
                *(records.put_key(records.UNIT + unit_id) for unit_id in sorted(shared.units)),
            ]
        return _page(now_s, puts, None)
    replica = fleet.cluster(cluster)
    with replica.reading(fleet.store) as now_s:
        later = (key for key in replica.versions if key > (after or "") and key.startswith(_COPIED))
        keys = nsmallest(limit + 1, later)
        shown = keys[:limit]
        puts = [put for key in shown if (put := _put(replica, key)) is not None]
    return _page(now_s, puts, shown[-1] if len(keys) > limit else None)


def _page(now_s: float, puts: Iterable[Put], next: str | None) -> RecordsPage:
    by_key = {put.key: put.value.decode() for put in puts if put.value is not None}
    return RecordsPage(now_s=now_s, records=by_key, next=next)


def _put(replica: ClusterReplica, key: str) -> Put | None:
    kind, name = key[:2], key[2:]
    if kind == records.HOST:
        row = replica.table.row_of(name)
        return None if row is None else records.put_host(replica.table.records[row])
    if kind == records.INSTANCES:
        return records.put_instances(name, replica.table.reported_instances(name))
    if kind == records.RESERVATION:
        reservation = replica.reservations.get(name)
        return None if reservation is None else records.put_reservation(reservation)
    return None if replica.policy is None else records.put_policy(replica.policy)


# What is in the records of a cluster


def hosts_in(by_key: Mapping[str, str]) -> Iterator[HostRecord]:
    """The hosts."""
    return (records.read_host(value) for _, value in _of_kind(by_key, records.HOST))


def instances_in(by_key: Mapping[str, str]) -> Iterator[tuple[str, records.Instances]]:
    """The host names with the instances that they report."""
    return ((n, records.read_instances(value)) for n, value in _of_kind(by_key, records.INSTANCES))


def reservations_in(by_key: Mapping[str, str]) -> Iterator[Reservation]:
    """The reservations."""
    return (records.read_reservation(value) for _, value in _of_kind(by_key, records.RESERVATION))


def _of_kind(by_key: Mapping[str, str], kind: str) -> Iterator[tuple[str, str]]:
    return ((key[len(kind) :], value) for key, value in by_key.items() if key.startswith(kind))


# As lines of JSON: a snapshot, then decisions


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    outline: DecisionSummary
    details: DecisionDetails | None


def lines(snapshot: Snapshot, decisions: Iterable[KeptDecision]) -> Iterator[bytes]:
    """The copies as lines, each with its line feed."""
    yield _ENCODER.encode_lines([snapshot])
    for decision in decisions:
        yield _ENCODER.encode_lines([_Line(str(decision.id), decision.outline, decision.details)])


def parsed(encoded: Iterable[bytes]) -> tuple[Snapshot, list[KeptDecision]]:
    """What such lines say. Raises ValueError, which says which line is wrong."""
    rest = iter(encoded)
    try:
        snapshot = _read_snapshot(next(rest, b""))
    except ValueError as error:
        raise ValueError(f"at its beginning: {error!s:.200}") from None
    decisions: list[KeptDecision] = []
    try:
        for line in map(_read_line, rest):
            id = DecisionId.parse(line.id)
            decisions.append(KeptDecision(id, line.outline, line.details))
    except ValueError as error:
        raise ValueError(f"at decision {len(decisions) + 1}: {error!s:.200}") from None
    return snapshot, decisions


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
_read_snapshot, _read_line = json_reader(Snapshot), json_reader(_Line)
