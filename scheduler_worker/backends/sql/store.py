"""The policy store on SQL, and its tables as statements name them; ``migrations/`` makes them.

Names and texts compare by code points, so that all databases agree on what is equal; ``name_key``
is the name without letter case.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Row,
    column,
    delete,
    insert,
    select,
    table,
    tuple_,
    update,
)

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound
from scheduler_worker.model.policies import read_policy, write_policy
from scheduler_worker.policy_store import (
    EVERYTHING,
    MAX_PAGE,
    NAME,
    NEW,
    Attachment,
    AuditEntry,
    AuditFilter,
    StoredPolicy,
    StoredUnit,
    marker_number,
    shortened,
)
from scheduler_worker.wording import cut

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
policy_user_unit = table("policy_user_unit", column("policy_id"), column("unit_id"))
"""The user units that a policy uses; the worker's own are code."""
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


class SqlPolicyStore:
    """Implements ``PolicyStore``: one transaction for each call, with its audit entry."""

    def __init__(self, settings: PolicyStoreSettings) -> None:
        """Raises ConfigError when the connection's URL cannot be used; connects to nothing."""
        self.database = Database(settings)

    # Policies

    def policies(self) -> list[StoredPolicy]:
        with self.database.reading() as connection:
            return _policies(connection)

    def policy(self, policy_id: str) -> StoredPolicy | None:
        with self.database.reading() as connection:
            return next(iter(_policies(connection, policy_id)), None)

    def add(self, policy: StoredPolicy, audit: AuditEntry) -> None:
        def work(connection: Connection) -> None:
            for stored in _policies(connection, policy.document.id):
                document = stored.document
                raise EditConflict(f"Policy {document.name}", stored.changed_by, document.version)
            _check_name(connection, policy)
            connection.execute(insert(_POLICY), _policy_row(policy))
            _insert_user_units(connection, policy)
            _record(connection, audit)

        self.database.write(work)

    def replace(
        self,
        policy: StoredPolicy,
        *,
        expected_version: int,
        clusters: Collection[str] | None = None,
        audit: AuditEntry,
    ) -> None:
        policy_id = policy.document.id

        def work(connection: Connection) -> None:
            # Locking: who attaches a cluster meanwhile comes before this, or after it.
            _check_version(connection, policy_id, expected_version, is_locking=True)
            for attachment in _attachments(connection):
                is_other = clusters is not None and attachment.cluster not in clusters
                if is_other and attachment.policy_id == policy_id:
                    raise _attachment_conflict(attachment.cluster, attachment)
            _check_name(connection, policy)
            done = connection.execute(
                update(_POLICY)
                .where(_POLICY.c.id == policy_id, _POLICY.c.version == expected_version)
                .values(_policy_row(policy))
            )
            if not done.rowcount:  # another edit was committed since the check
                raise _lost_edit(connection, policy_id)
            used = policy_user_unit
            connection.execute(delete(used).where(used.c.policy_id == policy_id))
            _insert_user_units(connection, policy)
            _record(connection, audit)

        self.database.write(work)

    def remove(
        self, policy_id: str, *, expected_version: int | None = None, audit: AuditEntry
    ) -> None:
        def work(connection: Connection) -> None:
            name = _check_version(connection, policy_id, expected_version, is_locking=True)
            users = connection.scalars(
                select(policy_cluster.c.cluster)
                .where(policy_cluster.c.policy_id == policy_id)
                .order_by(policy_cluster.c.cluster)
            ).all()
            if users:
                raise InUse(f"Policy {name}", users)
            connection.execute(delete(_POLICY).where(_POLICY.c.id == policy_id))
            _record(connection, audit)

        self.database.write(work)

    # Attachments

    def attachments(self) -> list[Attachment]:
        with self.database.reading() as connection:
            return _attachments(connection)

    def attachment(self, cluster: str) -> Attachment | None:
        with self.database.reading() as connection:
            return next(iter(_attachments(connection, cluster)), None)

    def attach(self, attachment: Attachment, *, expected_version: int, audit: AuditEntry) -> None:
        cluster = attachment.cluster

        def work(connection: Connection) -> None:
            now = next(iter(_attachments(connection, cluster)), None)
            if (now.version if now else NEW) != expected_version:
                raise _attachment_conflict(cluster, now)
            if not attachment.is_built_in and not connection.scalar(
                select(_POLICY.c.id).where(_POLICY.c.id == attachment.policy_id)
            ):
                raise NotFound("policy", attachment.policy_id)
            attached, row = policy_cluster, _attachment_row(attachment)
            if now is None:
                connection.execute(insert(attached), row)
            else:
                done = connection.execute(
                    update(attached)
                    .where(attached.c.cluster == cluster, attached.c.version == expected_version)
                    .values(row)
                )
                if not done.rowcount:
                    now = next(iter(_attachments(connection, cluster)), None)
                    raise _attachment_conflict(cluster, now)
            _record(connection, audit)

        self.database.write(work)

    # Units

    def units(self) -> list[StoredUnit]:
        with self.database.reading() as connection:
            query = select(policy_unit).order_by(policy_unit.c.name, policy_unit.c.kind)
            return [
                StoredUnit(**row._asdict() | {"parameters": _parameters(row.parameters)})
                for row in connection.execute(query)
            ]

    def put_units(self, units: Sequence[StoredUnit]) -> None:
        def work(connection: Connection) -> None:
            known = set(connection.scalars(select(policy_unit.c.id)))
            for unit in units:
                row = msgspec.structs.asdict(unit)
                row |= {"kind": str(unit.kind), "parameters": _json(unit.parameters)}
                if unit.id in known:
                    change = update(policy_unit).where(policy_unit.c.id == unit.id).values(row)
                    connection.execute(change)
                else:
                    connection.execute(insert(policy_unit), row)

        self.database.write(work)

    def remove_unit(self, unit_id: str, audit: AuditEntry) -> None:
        def work(connection: Connection) -> None:
            name = connection.scalar(
                select(policy_unit.c.name).where(policy_unit.c.id == unit_id).with_for_update()
            )
            if name is None:
                raise NotFound("unit", unit_id)
            users = connection.scalars(
                select(_POLICY.c.name)
                .join(policy_user_unit, policy_user_unit.c.policy_id == _POLICY.c.id)
                .where(policy_user_unit.c.unit_id == unit_id)
                .order_by(_POLICY.c.name)
            ).all()
            if users:
                raise InUse(f"Unit {name}", users)
            connection.execute(delete(policy_unit).where(policy_unit.c.id == unit_id))
            _record(connection, audit)

        self.database.write(work)

    # Audit

    def record(self, entry: AuditEntry) -> None:
        self.database.write(lambda connection: _record(connection, entry))

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        query = select(audit).order_by(audit.c.id).limit(max(1, min(limit, MAX_PAGE)))
        query = query.where(*_conditions(criteria))
        if after is not None:
            query = query.where(audit.c.id > marker_number(after))
        with self.database.reading() as connection:
            return [_audit_entry(row) for row in connection.execute(query)]

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


_POLICY = policy


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


def _policies(connection: Connection, policy_id: str | None = None) -> list[StoredPolicy]:
    """The policy with this id, or all by name."""
    query = select(policy).order_by(policy.c.name_key)
    if policy_id is not None:
        query = query.where(policy.c.id == policy_id)
    return [
        StoredPolicy(
            document=read_policy(row.document),
            changed_by=row.changed_by,
            changed_at_s=row.changed_at_s,
        )
        for row in connection.execute(query)
    ]


def _attachments(connection: Connection, cluster: str | None = None) -> list[Attachment]:
    """The attachment of this cluster, or all by name."""
    query = select(policy_cluster).order_by(policy_cluster.c.cluster)
    if cluster is not None:
        query = query.where(policy_cluster.c.cluster == cluster)
    return [
        Attachment(
            cluster=row.cluster,
            policy_id=row.policy_id or row.built_in_policy,
            is_built_in=row.policy_id is None,
            parameters=_parameters(row.parameters),
            version=row.version,
            changed_by=row.changed_by,
            changed_at_s=row.changed_at_s,
        )
        for row in connection.execute(query)
    ]


def _policy_row(policy: StoredPolicy) -> dict[str, Any]:
    document = policy.document
    return {
        "id": document.id,
        "name": document.name,
        "name_key": document.name.casefold(),
        "document": write_policy(document).decode(),
        "version": document.version,
        "changed_by": cut(policy.changed_by, NAME),
        "changed_at_s": policy.changed_at_s,
    }


def _insert_user_units(connection: Connection, stored: StoredPolicy) -> None:
    """Note which user units a stored policy uses, so that none of them can be removed."""
    units, document = policy_unit, stored.document
    balances = () if document.balance is None else (document.balance,)
    uses = {"filter": document.filters, "weight": document.weights, "balance": balances}
    uses["selector"] = (document.selector,)
    used = [(kind, use.unit) for kind, some in uses.items() for use in some]
    of_users = select(units.c.id).where(tuple_(units.c.kind, units.c.name).in_(used))
    rows = [{"policy_id": document.id, "unit_id": each} for each in connection.scalars(of_users)]
    if rows:
        connection.execute(insert(policy_user_unit), rows)


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


def _json(parameters: Mapping[str, str]) -> str:
    return msgspec.json.encode(parameters, order="sorted").decode()


def _parameters(text: str) -> dict[str, str]:
    return json_reader(dict[str, str])(text)


def _audit_entry(row: Row[Any]) -> AuditEntry:
    fields = row._asdict()
    number, user = fields.pop("id"), fields.pop("user_name")
    return AuditEntry(id=str(number), user=user, **fields)


def _check_version(
    connection: Connection, policy_id: str, expected: int | None, *, is_locking: bool = False
) -> str:
    """The name of the policy, if it is stored in this version (None: in any)."""
    query = select(policy.c.name, policy.c.version).where(policy.c.id == policy_id)
    row = connection.execute(query.with_for_update() if is_locking else query).one_or_none()
    if row is None or expected not in {None, row.version}:
        raise _lost_edit(connection, policy_id)
    name: str = row.name
    return name


def _check_name(connection: Connection, stored: StoredPolicy) -> None:
    key = stored.document.name.casefold()
    query = select(policy.c.id).where(policy.c.name_key == key, policy.c.id != stored.document.id)
    if connection.scalar(query) is not None:
        raise NameTaken(stored.document.name)


def _lost_edit(connection: Connection, policy_id: str) -> EditConflict | NotFound:
    """What another edit or removal has left, as the error that names it."""
    query = select(policy.c.name, policy.c.version, policy.c.changed_by)
    row = connection.execute(query.where(policy.c.id == policy_id)).one_or_none()
    if row is None:
        return NotFound("policy", policy_id)
    return EditConflict(f"Policy {row.name}", row.changed_by, row.version)


def _attachment_conflict(cluster: str, now: Attachment | None) -> EditConflict:
    changed_by, version = (now.changed_by, now.version) if now else ("", NEW)
    return EditConflict(f"The policy of cluster {cluster}", changed_by, version)


def _record(connection: Connection, entry: AuditEntry) -> None:
    """Add an entry, which gets its number from the database."""
    row = msgspec.structs.asdict(shortened(entry))
    del row["id"]
    row["user_name"] = row.pop("user")
    connection.execute(insert(audit), row)
