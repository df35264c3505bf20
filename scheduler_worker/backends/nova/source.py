"""Nova's databases as a source of hosts: one part for each cell that is not disabled."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, and_, bindparam, func, literal, or_, select

from scheduler_worker.backends.nova.database import (
    DatabaseFacts,
    ReadOnlyDatabase,
    inspected,
    now_of,
    now_s,
)
from scheduler_worker.backends.nova.reports import INSTANCE_COLUMNS, NODE_COLUMNS, Decode, reading
from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.backends.nova.tables import (
    CELL0,
    CHECKED,
    aggregate_hosts,
    aggregate_metadata,
    aggregates,
    cell_mappings,
    compute_nodes,
    host_mappings,
    instance_system_metadata,
    instances,
    moment,
    seconds,
    services,
)
from scheduler_worker.errors import ConfigError, SourceUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.feed import (
    ChangedRow,
    HostReading,
    Listing,
    Outline,
    Part,
    RecentChanges,
    ServiceState,
    ServiceStates,
)

_API = "[api_database] connection"
_COMPUTE = "nova-compute"
_VARIABLE = re.compile(r"\{(\w*)\}")
_CELLS = select(cell_mappings).where(cell_mappings.c.uuid != CELL0)
_CHANGED_AT = func.coalesce(compute_nodes.c.updated_at, compute_nodes.c.created_at)


class NovaDatabases:
    """Implements ``HostSource``. ``decode`` reads host reports as ``update_hosts`` has them."""

    def __init__(self, settings: NovaDatabasesSettings, decode: Decode) -> None:
        """Raises ConfigError for a connection that cannot be used; connects to nothing."""
        self._settings = settings
        self._decode = decode
        url = settings.api_connection
        if settings.connection_parameters:
            url += f"{'&' if '?' in url else '?'}{settings.connection_parameters}"
        self._api = ReadOnlyDatabase(_API, url, settings)
        self._cells: dict[str, _Cell] = {}

    def outline(self) -> Outline:
        with self._api.reading() as connection:
            cells = connection.execute(_CELLS).all()
            mappings = connection.execute(select(host_mappings)).all()
            known_aggregates = _aggregates(connection)
        parts = self._connect(cells)
        ids = {cell.id: cell.uuid for cell in cells if cell.uuid in self._cells}
        part_of = {each.host: ids[each.cell_id] for each in mappings if each.cell_id in ids}
        return Outline(parts=parts, part_of=part_of, aggregates=tuple(known_aggregates))

    def connect(self) -> None:
        with self._api.reading() as connection:
            cells = connection.execute(_CELLS).all()
        self._connect(cells)

    def services(self, part_id: str, hosts: Collection[str] | None = None) -> ServiceStates:
        with self._cell(part_id).reading() as connection:
            query = _services(connection.dialect.name, of_some=hosts is not None)
            rows = connection.execute(query, {"hosts": list(hosts or ())}).all()
        states = {
            row.host: ServiceState(
                None if row.seen is None else seconds(row.seen),
                bool(row.disabled),
                row.disabled_reason,
                bool(row.forced_down),
            )
            for row in rows
        }
        return ServiceStates(seconds(rows[0].now) if rows else 0.0, states)

    def listing(self, part_id: str) -> Listing:
        on_hosts = and_(instances.c.deleted == 0, instances.c.host.is_not(None))
        counts = select(instances.c.host, func.count()).where(on_hosts).group_by(instances.c.host)
        with self._cell(part_id).reading() as connection:
            read_at_s = now_s(connection)
            nodes = _changed(connection, _nodes())
            counted = {row[0]: row[1] for row in connection.execute(counts)}
        return Listing(read_at_s, nodes, counted)

    def changes(
        self, part_id: str, *, nodes_since_s: float, instances_since_s: float
    ) -> RecentChanges:
        since = moment(nodes_since_s)
        nodes = _nodes().where(
            or_(
                compute_nodes.c.updated_at >= since,
                and_(compute_nodes.c.updated_at.is_(None), compute_nodes.c.created_at >= since),
            )
        )
        # By the index of updated_at. A removal moves deleted_at alone, shortly after a change.
        table = instances.c
        changed = func.coalesce(table.deleted_at, table.updated_at).label("changed")
        moved = select(
            table.uuid, table.host, changed, table.deleted, table.vm_state, table.task_state
        ).where(table.updated_at >= moment(instances_since_s))
        with self._cell(part_id).reading() as connection:
            read_at_s, changed_nodes = now_s(connection), _changed(connection, nodes)
            changed_instances = [_changed_instance(row) for row in connection.execute(moved)]
            return RecentChanges(read_at_s, changed_nodes, changed_instances)

    def read(self, part_id: str, hosts: Sequence[str]) -> list[HostReading]:
        node, instance = compute_nodes.c, instances.c
        nodes = select(*NODE_COLUMNS).where(node.deleted == 0, node.host.in_(hosts))
        on_hosts = select(*INSTANCE_COLUMNS).where(instance.host.in_(hosts), instance.deleted == 0)
        with self._cell(part_id).reading() as connection:
            by_host = _by_host(connection, nodes)
            listed = _by_host(connection, on_hosts)
            if self._settings.image_properties:
                _add_image_properties(connection, hosts, listed)
        decode = self._decode
        return [reading(host, rows, listed.get(host, ()), decode) for host, rows in by_host.items()]

    def close(self) -> None:
        self._api.close()
        for cell in self._cells.values():
            cell.close()

    def check(self) -> Iterator[tuple[str, str | None]]:
        """The name of each database, and why it cannot be read; None: it can."""
        problem = _refusal(lambda: self._api, "api")
        yield f"Nova's API database {self._api.name}", problem
        if problem is None:
            try:
                parts = self.outline().parts
            except SourceUnavailable as error:
                yield f"Nova's API database {self._api.name}", str(error)
                return
            for part in parts:
                refusal = _refusal(lambda part=part: self._cell(part.id), "cell")  # type: ignore[misc]
                yield f"the database of cell {part.name}", refusal

    def facts(self, part_id: str | None) -> DatabaseFacts:
        """Of the database of a cell in the last outline; None: the API database.

        Raises SourceUnavailable.
        """
        return inspected(self._api if part_id is None else self._cell(part_id))

    # Cells

    def _connect(self, rows: Iterable[Any]) -> tuple[Part, ...]:
        """Make the databases of the enabled cell mappings, and close all others."""
        before, cells, parts = self._cells, dict[str, _Cell](), list[Part]()
        for row in rows:
            if row.disabled:
                continue
            cell = before.get(row.uuid)
            if cell is None or cell.template != row.database_connection:
                cell = _Cell(row.uuid, row.database_connection or "", self._settings)
            cells[row.uuid] = cell
            parts.append(Part(row.uuid, row.name or row.uuid))
        self._cells = cells
        for uuid, cell in before.items():
            if cells.get(uuid) is not cell:
                cell.close()
        return tuple(parts)

    def _cell(self, part_id: str) -> ReadOnlyDatabase:
        cell = self._cells.get(part_id)
        if cell is None:
            raise SourceUnavailable(f"Cell {part_id} has no mapping any more")
        return cell.database()


class _Cell:
    """The database of a cell mapping, which may have a URL that cannot be used."""

    def __init__(self, uuid: str, template: str, settings: NovaDatabasesSettings) -> None:
        self.template = template
        self._problem = ""
        self._database: ReadOnlyDatabase | None = None
        try:
            url = filled(template, settings.local_connection)
            account = "its cell mapping" if url == template else "[database] connection"
            self._database = ReadOnlyDatabase("its database connection", url, settings, account)
        except ConfigError as error:
            self._problem = f"cell mapping {uuid}: {error}"

    def database(self) -> ReadOnlyDatabase:
        """Raises SourceUnavailable."""
        if self._database is None:
            raise SourceUnavailable(self._problem)
        return self._database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def filled(template: str, local: str | None) -> str:
    """The URL of a cell's database; the mapping may have a template of the local configuration's.

    A template names parts of ``[database] connection`` in braces: ``{scheme} {username} {password}
    {hostname} {port} {path} {query} {fragment}``, the path without its first slash. If that URL
    names several hosts, ``{username1} {password1} {hostname1} {port1}`` are of the first host, and
    so on; without a number, it is the first.

    Raises ConfigError: the template names a part that the local URL does not have; it names no
    value.
    """
    names = set(_VARIABLE.findall(template))
    if not names:
        return template
    if not local:
        raise ConfigError(
            "its database connection is a template, and [database] connection, which fills it, is "
            "not set"
        )
    parts = _parts(local)
    if missing := sorted(names - parts.keys()):
        raise ConfigError(
            f"its database connection is a template with {{{missing[0]}}}, which [database] "
            "connection does not have"
        )
    return _VARIABLE.sub(lambda match: parts[match[1]], template)


def _parts(url: str) -> dict[str, str]:
    """The parts of a URL that a template may name; empty ones, too, but for hosts and accounts."""
    try:
        split = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"[database] connection is no URL: {error}") from None
    parts = {
        "scheme": split.scheme,
        "path": split.path.removeprefix("/"),
        "query": split.query,
        "fragment": split.fragment,
    }
    account = ""
    for number, host in enumerate(split.netloc.split(","), 1):
        own, at, address = host.rpartition("@")
        account = own if at else account
        for name, value in _of_host(account, address).items():
            parts[f"{name}{number}"] = value
            if number == 1:
                parts[name] = value
    return parts


def _of_host(account: str, address: str) -> dict[str, str]:
    username, _, password = account.partition(":")
    matched = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", address)
    hostname, port = (matched[1], matched[2]) if matched else (address, None)
    values = {"username": username, "password": password, "hostname": hostname, "port": port}
    return {name: value for name, value in values.items() if value}


@cache
def _services(dialect: str, *, of_some: bool) -> Any:
    table = services.c
    seen = func.coalesce(table.last_seen_up, table.created_at).label("seen")
    facts = table.disabled, table.disabled_reason, table.forced_down
    query = select(table.host, seen, *facts, now_of(dialect).label("now")).where(
        table.deleted == 0, table.binary == _COMPUTE
    )
    return query.where(table.host.in_(bindparam("hosts", expanding=True))) if of_some else query


def _nodes() -> Any:
    table = compute_nodes.c
    return select(table.uuid, table.host, _CHANGED_AT).where(
        table.deleted == 0, table.uuid.is_not(None)
    )


def _changed(connection: Connection, query: Any) -> list[ChangedRow]:
    return [ChangedRow(row[0], row[1], seconds(row[2])) for row in connection.execute(query)]


_BUILDING = "building"
"""The state of an instance from its creation until its build has succeeded or failed."""


def _changed_instance(row: Any) -> ChangedRow:
    if row.deleted:
        return ChangedRow(row.uuid, None, seconds(row.changed), is_settled=True)
    # The API sets a task before it asks for a move, so without one nobody has asked since. A
    # compute ends the task of scheduling before it enters itself as the host of what it builds.
    is_settled = row.task_state is None and row.vm_state != _BUILDING
    return ChangedRow(row.uuid, row.host, seconds(row.changed), is_settled=is_settled)


def _by_host(connection: Connection, query: Any) -> dict[str, list[dict[str, Any]]]:
    by_host: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(query):
        by_host[row.host].append(row._asdict())
    return by_host


def _add_image_properties(
    connection: Connection, hosts: Sequence[str], listed: Mapping[str, Iterable[dict[str, Any]]]
) -> None:
    table = instance_system_metadata.c
    query = (
        select(table.instance_uuid, table.key, table.value)
        .join_from(instances, instance_system_metadata, instances.c.uuid == table.instance_uuid)
        .where(
            instances.c.host.in_(hosts),
            instances.c.deleted == 0,
            table.deleted == 0,
            table.key.startswith("image_", autoescape=True),
        )
    )
    properties: dict[str, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(query):
        properties[row.instance_uuid][row.key] = row.value
    for on_host in listed.values():
        for instance in on_host:
            instance["system_metadata"] = properties.get(instance["uuid"], {})


def _aggregates(connection: Connection) -> list[Aggregate]:
    hosts: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(select(aggregate_hosts)):
        hosts[row.aggregate_id].append(row.host)
    metadata: dict[int, dict[str, str]] = defaultdict(dict)
    for row in connection.execute(select(aggregate_metadata)):
        metadata[row.aggregate_id][row.key] = row.value or ""
    return [
        Aggregate(
            id=row.id,
            uuid=row.uuid or "",
            name=row.name or "",
            hosts=tuple(sorted(hosts[row.id])),
            metadata=dict(sorted(metadata[row.id].items())),
        )
        for row in connection.execute(select(aggregates))
    ]


def _refusal(database: Callable[[], ReadOnlyDatabase], kind: str) -> str | None:
    """Why not all tables that are needed can be read; None: they can."""
    try:
        with database().reading() as connection:
            for table in CHECKED[kind]:
                connection.execute(select(*table.c).where(literal(1) == 0)).all()
    except SourceUnavailable as error:
        return str(error)
    return None
