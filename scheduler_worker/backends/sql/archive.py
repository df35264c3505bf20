"""The archive in SQL, and its tables as statements name them; ``migrations/`` makes them.

Names and texts compare by code points, so that all databases agree on what is equal; ``name_key``
is the name without letter case.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Row,
    TableClause,
    column,
    delete,
    func,
    insert,
    select,
    table,
    update,
)

from scheduler_worker.archive import ArchiveState
from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.conversion import json_reader
from scheduler_worker.model.audit import (
    EVERYTHING,
    MAX_PAGE,
    NAME,
    AuditEntry,
    AuditFilter,
    marker_number,
    shortened,
)
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import read_policy, write_policy
from scheduler_worker.wording import cut

Kept = TypeVar("Kept")

book = table("book", column("id"), column("number"))
"""One row: the id of the archive, and of the last entry that it has; null: no book was copied."""
policy_unit = table(
    "policy_unit",
    *map(column, ("id", "name", "kind", "description", "parameters")),
    column("is_enabled", Boolean),
)
"""User units; ``parameters`` is a JSON object of names and regexes."""
policy = table(
    "policy",
    *map(column, ("id", "name", "name_key", "document", "version", "changed_by", "changed_at_s")),
)
"""Policies, each a JSON document."""
policy_cluster = table(
    "policy_cluster",
    *map(column, ("cluster", "policy_id", "built_in_policy", "parameters", "version")),
    *map(column, ("changed_by", "changed_at_s")),
)
"""The attachments: to a stored policy, or to one that is code; ``parameters`` is a JSON object."""
audit = table(
    "audit",
    *map(column, ("id", "at_s", "user_name", "origin", "action", "subject", "result", "reason")),
    *map(column, ("before", "after")),
)
"""Every change, and every attempt that was refused; rows are only added."""


class SqlArchive:
    """Implements ``Archive``: one transaction for each call."""

    def __init__(self, settings: PolicyStoreSettings) -> None:
        """Raises ConfigError when the connection's URL cannot be used; connects to nothing."""
        self.database = Database(settings)

    def state(self) -> ArchiveState:
        with self.database.reading() as connection:
            return _state(connection)

    def documents(self) -> Documents:
        with self.database.reading() as connection:
            return _documents(connection)

    def keep(self, documents: Documents, entries: Sequence[AuditEntry], number: int) -> bool:
        def work(connection: Connection) -> bool:
            # Of two processes that copy, the second one waits here, and finds what the first has.
            connection.execute(select(book).with_for_update())
            kept = _state(connection).number
            if number <= kept:
                return False
            rows = [_entry_row(entry) for entry in entries if int(entry.id) > kept]
            if rows:
                connection.execute(insert(audit), rows)
            _replace(connection, documents)
            connection.execute(update(book).values(number=number))
            return True

        return self.database.write(work)

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        query = select(audit).order_by(audit.c.id).limit(max(1, min(limit, MAX_PAGE)))
        query = query.where(*_conditions(criteria))
        if after is not None:
            query = query.where(audit.c.id > marker_number(after))
        with self.database.reading() as connection:
            return [_entry(row) for row in connection.execute(query)]

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        oldest = select(audit.c.id, audit.c.at_s).order_by(audit.c.id).limit(limit)

        def work(connection: Connection) -> int:
            # The ids are in the order of time, so no index of times is needed.
            old = [row.id for row in connection.execute(oldest) if row.at_s < before_s]
            if old:
                connection.execute(delete(audit).where(audit.c.id.in_(old)))
            return len(old)

        return self.database.write(work)

    def close(self) -> None:
        self.database.close()


def _state(connection: Connection) -> ArchiveState:
    row = connection.execute(select(book)).one()
    number = row.number
    if number is None:  # what an older program has stored is the beginning of the history
        number = connection.scalar(select(func.max(audit.c.id))) or 0
    last = connection.execute(select(audit).where(audit.c.id == number)).one_or_none()
    return ArchiveState(row.id, number, None if last is None else _entry(last))


# Documents


def _documents(connection: Connection) -> Documents:
    return Documents(
        {each.document.id: each for each in map(_policy, connection.execute(select(policy)))},
        {
            each.cluster: each
            for each in map(_attachment, connection.execute(select(policy_cluster)))
        },
        {each.id: each for each in map(_unit, connection.execute(select(policy_unit)))},
    )


def _replace(connection: Connection, documents: Documents) -> None:
    """Write what differs. Attachments go first and come last, because they name policies."""
    policies = _Rows(connection, policy, "id", ("version", "changed_at_s", "name_key"))
    attachments = _Rows(connection, policy_cluster, "cluster")
    units = _Rows(connection, policy_unit, "id")
    attachments.remove_all_but(documents.attachments)
    policies.remove_all_but(documents.policies)
    units.remove_all_but(documents.units)
    changed = policies.changed(documents.policies, _policy_row, _policy_mark)
    for key in changed.keys() & policies.seen.keys():
        # Names may have been exchanged, and no two are equal at any moment.
        hidden = update(policy).where(policy.c.id == key).values(name_key=f"\t{key}")
        connection.execute(hidden)
    policies.put(changed)
    units.put(units.changed(documents.units, _unit_row))
    attachments.put(attachments.changed(documents.attachments, _attachment_row))


class _Rows:
    """The rows of a table, by key, with the columns that tell whether one has changed."""

    def __init__(
        self, connection: Connection, table: TableClause, key: str, compared: Sequence[str] = ()
    ) -> None:
        """``compared``: empty for all."""
        self._connection = connection
        self._table = table
        self._key = table.c[key]
        self._compared = compared or [each.name for each in table.c]
        query = select(self._key.label("_key"), *(table.c[each] for each in self._compared))
        self.seen = {row[0]: tuple(row)[1:] for row in connection.execute(query)}

    def remove_all_but(self, kept: Collection[str]) -> None:
        for gone in self.seen.keys() - set(kept):
            self._connection.execute(delete(self._table).where(self._key == gone))

    def changed(
        self,
        documents: Mapping[str, Kept],
        row_of: Callable[[Kept], dict[str, Any]],
        mark_of: Callable[[Kept], tuple[Any, ...]] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The rows that are new or differ; ``mark_of`` a document are its compared columns."""

        def mark(document: Kept) -> tuple[Any, ...]:
            row = row_of(document)
            return tuple(row[each] for each in self._compared)

        mark_of = mark_of or mark
        return {
            key: row_of(document)
            for key, document in documents.items()
            if self.seen.get(key) != mark_of(document)
        }

    def put(self, rows: Mapping[str, dict[str, Any]]) -> None:
        new = []
        for key, row in rows.items():
            if key in self.seen:
                change = update(self._table).where(self._key == key).values(row)
                self._connection.execute(change)
            else:
                new.append(row)
        if new:
            self._connection.execute(insert(self._table), new)


def _policy(row: Row[Any]) -> StoredPolicy:
    return StoredPolicy(
        document=read_policy(row.document), changed_by=row.changed_by, changed_at_s=row.changed_at_s
    )


def _policy_row(stored: StoredPolicy) -> dict[str, Any]:
    document = stored.document
    return {
        "id": document.id,
        "name": document.name,
        "name_key": document.name.casefold(),
        "document": write_policy(document).decode(),
        "version": document.version,
        "changed_by": cut(stored.changed_by, NAME),
        "changed_at_s": stored.changed_at_s,
    }


def _policy_mark(stored: StoredPolicy) -> tuple[Any, ...]:
    """Tells whether a policy has changed, and spares to encode all others."""
    document = stored.document
    return document.version, stored.changed_at_s, document.name.casefold()


def _attachment(row: Row[Any]) -> Attachment:
    return Attachment(
        cluster=row.cluster,
        policy_id=row.policy_id or row.built_in_policy,
        is_built_in=row.policy_id is None,
        parameters=_parameters(row.parameters),
        version=row.version,
        changed_by=row.changed_by,
        changed_at_s=row.changed_at_s,
    )


def _attachment_row(attachment: Attachment) -> dict[str, Any]:
    policy_id = attachment.policy_id
    return {
        "cluster": attachment.cluster,
        "policy_id": None if attachment.is_built_in else policy_id,
        "built_in_policy": policy_id if attachment.is_built_in else None,
        "parameters": _json(attachment.parameters),
        "version": attachment.version,
        "changed_by": cut(attachment.changed_by, NAME),
        "changed_at_s": attachment.changed_at_s,
    }


def _unit(row: Row[Any]) -> StoredUnit:
    return StoredUnit(**row._asdict() | {"parameters": _parameters(row.parameters)})


def _unit_row(unit: StoredUnit) -> dict[str, Any]:
    row = msgspec.structs.asdict(unit)
    return row | {"kind": str(unit.kind), "parameters": _json(unit.parameters)}


def _json(parameters: Mapping[str, str]) -> str:
    return msgspec.json.encode(parameters, order="sorted").decode()


def _parameters(text: str) -> dict[str, str]:
    return json_reader(dict[str, str])(text)


# The audit


def _conditions(criteria: AuditFilter) -> list[ColumnElement[bool]]:
    equal = {
        audit.c.user_name: criteria.user,
        audit.c.action: criteria.action,
        audit.c.subject: criteria.subject,
        audit.c.result: criteria.result,
    }
    conditions = [each == value for each, value in equal.items() if value is not None]
    if criteria.since_s is not None:
        conditions.append(audit.c.at_s >= criteria.since_s)
    if criteria.until_s is not None:
        conditions.append(audit.c.at_s < criteria.until_s)
    return conditions


def _entry(row: Row[Any]) -> AuditEntry:
    fields = row._asdict()
    number, user = fields.pop("id"), fields.pop("user_name")
    return AuditEntry(id=str(number), user=user, **fields)


def _entry_row(entry: AuditEntry) -> dict[str, Any]:
    row = msgspec.structs.asdict(shortened(entry))
    return row | {"id": int(entry.id), "user_name": row.pop("user")}
