"""The policy store on SQL."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, update

from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.backends.sql import rows
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.backends.sql.schema import (
    audit,
    policy,
    policy_cluster,
    policy_parameter,
    policy_policy_unit,
    policy_unit,
)
from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound
from scheduler_worker.policy_store import (
    EVERYTHING,
    MAX_PAGE,
    NEW,
    Attachment,
    AuditEntry,
    AuditFilter,
    StoredPolicy,
    StoredUnit,
    marker_number,
)


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
                raise EditConflict(
                    f"Policy {stored.document.name}", stored.changed_by, stored.document.version
                )
            _check_name(connection, policy)
            connection.execute(insert(_POLICY), rows.policy_row(policy))
            _insert_parts(connection, policy)
            _record(connection, audit)

        self.database.write(work)

    def replace(self, policy: StoredPolicy, *, expected_version: int, audit: AuditEntry) -> None:
        policy_id = policy.document.id

        def work(connection: Connection) -> None:
            row = rows.policy_row(policy)
            _check_version(connection, policy_id, expected_version)
            _check_name(connection, policy)
            done = connection.execute(
                update(_POLICY)
                .where(_POLICY.c.id == policy_id, _POLICY.c.version == expected_version)
                .values(row)
            )
            if not done.rowcount:  # another edit was committed since the check
                raise _lost_edit(connection, policy_id)
            for part in (policy_policy_unit, policy_parameter):
                connection.execute(delete(part).where(part.c.policy_id == policy_id))
            _insert_parts(connection, policy)
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
            row = rows.attachment_row(attachment)
            if now is None:
                connection.execute(insert(policy_cluster), row)
            else:
                table = policy_cluster
                done = connection.execute(
                    update(table)
                    .where(table.c.cluster == cluster, table.c.version == expected_version)
                    .values(row)
                )
                if not done.rowcount:
                    raise _attachment_conflict(
                        cluster, next(iter(_attachments(connection, cluster)), None)
                    )
                connection.execute(
                    delete(policy_parameter).where(policy_parameter.c.cluster == cluster)
                )
            parameters = rows.parameter_rows("cluster", cluster, attachment.parameters)
            _insert_all(connection, policy_parameter, parameters)
            _record(connection, audit)

        self.database.write(work)

    # Units

    def units(self) -> list[StoredUnit]:
        with self.database.reading() as connection:
            query = select(policy_unit).order_by(policy_unit.c.name, policy_unit.c.kind)
            return [rows.stored_unit(row) for row in connection.execute(query)]

    def put_units(self, units: Sequence[StoredUnit]) -> None:
        def work(connection: Connection) -> None:
            known = set(connection.scalars(select(policy_unit.c.id)))
            for unit in units:
                row = rows.unit_row(unit)
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
                .distinct()
                .join(policy_policy_unit)
                .where(policy_policy_unit.c.unit_id == unit_id)
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
            return [rows.audit_entry(row) for row in connection.execute(query)]

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        oldest = select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(limit)

        def work(connection: Connection) -> int:
            # The ids are in the order of time, so no index of times is needed.
            old = [row.id for row in connection.execute(oldest) if row.at < before_s]
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
    conditions = [column == value for column, value in equal.items() if value is not None]
    if criteria.since_s is not None:
        conditions.append(audit.c.at >= criteria.since_s)
    if criteria.until_s is not None:
        conditions.append(audit.c.at < criteria.until_s)
    return conditions


def _policies(connection: Connection, policy_id: str | None = None) -> list[StoredPolicy]:
    """The policy with this id, or all by name."""
    uses, parameters = policy_policy_unit, policy_parameter
    policy_query = select(policy).order_by(policy.c.name_key)
    use_query = select(uses).order_by(uses.c.policy_id, uses.c.kind, uses.c.sequence)
    if policy_id is not None:
        policy_query = policy_query.where(policy.c.id == policy_id)
        use_query = use_query.where(uses.c.policy_id == policy_id)
    by_policy: dict[str, list[Any]] = {}
    numbers = []
    for use in connection.execute(use_query):
        by_policy.setdefault(use.policy_id, []).append(use)
        numbers.append(use.id)
    parameter_query = select(parameters).where(parameters.c.cluster.is_(None))
    if policy_id is not None:
        of_policy = parameters.c.policy_id == policy_id
        parameter_query = parameter_query.where(or_(of_policy, parameters.c.use_id.in_(numbers)))
    values = connection.execute(parameter_query).all()
    own, of_uses = rows.by_owner(values, "policy_id"), rows.by_owner(values, "use_id")
    return [
        rows.stored_policy(row, by_policy[row.id], own.get(row.id, {}), of_uses)
        for row in connection.execute(policy_query)
    ]


def _attachments(connection: Connection, cluster: str | None = None) -> list[Attachment]:
    """The attachment of this cluster, or all by name."""
    attachment_query = select(policy_cluster).order_by(policy_cluster.c.cluster)
    parameter_query = select(policy_parameter).where(policy_parameter.c.cluster.is_not(None))
    if cluster is not None:
        attachment_query = attachment_query.where(policy_cluster.c.cluster == cluster)
        parameter_query = parameter_query.where(policy_parameter.c.cluster == cluster)
    own = rows.by_owner(connection.execute(parameter_query), "cluster")
    return [
        rows.stored_attachment(row, own.get(row.cluster, {}))
        for row in connection.execute(attachment_query)
    ]


def _insert_parts(connection: Connection, stored: StoredPolicy) -> None:
    """Insert the uses of units, and all parameters, of a policy whose row is there."""
    document = stored.document
    names = {use.unit for _, use in rows.use_rows(document, {})}
    query = select(policy_unit.c.kind, policy_unit.c.name, policy_unit.c.id)
    known = connection.execute(query.where(policy_unit.c.name.in_(names)))
    made = rows.use_rows(document, {(row.kind, row.name): row.id for row in known})
    numbers = connection.scalars(
        insert(policy_policy_unit).returning(policy_policy_unit.c.id, sort_by_parameter_order=True),
        [row for row, _ in made],
    ).all()
    parameters = rows.parameter_rows("policy_id", document.id, document.parameters)
    for number, (_, use) in zip(numbers, made, strict=True):
        parameters += rows.parameter_rows("use_id", number, use.parameters)
    _insert_all(connection, policy_parameter, parameters)


def _insert_all(connection: Connection, table: Any, values: Sequence[dict[str, Any]]) -> None:
    if values:
        connection.execute(insert(table), list(values))


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
    return EditConflict(
        f"The policy of cluster {cluster}",
        now.changed_by if now else "",
        now.version if now else NEW,
    )


def _record(connection: Connection, entry: AuditEntry) -> None:
    connection.execute(insert(audit), rows.audit_row(entry))
