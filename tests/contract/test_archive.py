"""The archive on SQL: copies, the audit, the schema, processes that die, outages."""

import itertools
import sqlite3
import stat
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from scheduler_worker.archive import ArchiveState
from scheduler_worker.backends.sql import archive as archives
from scheduler_worker.backends.sql import database as sql_database
from scheduler_worker.backends.sql.archive import (
    SqlArchive,
    audit,
    policy,
    policy_cluster,
    policy_unit,
)
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.backends.sql.migrate import BASE, PolicySchema, newest
from scheduler_worker.errors import ArchiveUnavailable, ConfigError, RequestError
from scheduler_worker.model.audit import AuditEntry, AuditFilter
from scheduler_worker.model.documents import Attachment, Documents, StoredPolicy, StoredUnit
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, WeightUse
from tests.support.databases import MariaServer, PostgresServer
from tests.support.threads import Threads

from .archives import DATABASES, new_database, opened, settings
from .test_book import RICH

POLICY = "stored"
AT_S = 1763800000.123456
DOCUMENT = ClusterPolicy(
    id=POLICY,
    name="policy 1",
    version=1,
    filters=(
        FilterUse(unit="unit 0", parameters={"of": "1"}),
        FilterUse(unit="unit 1", parameters={"of": "1"}),
    ),
    weights=(WeightUse(unit="unit 0", factor=1.0), WeightUse(unit="unit 1", factor=1.0)),
    parameters={"of": "1"},
)
DOCUMENTS = Documents(
    {
        POLICY: StoredPolicy(document=DOCUMENT, changed_by="anna ✓", changed_at_s=AT_S),
        RICH.id: StoredPolicy(document=RICH),
    },
    {
        "east": Attachment(cluster="east", policy_id=POLICY, parameters={"of": "2", "b": ""}),
        "west": Attachment(
            cluster="west", policy_id="none", is_built_in=True, version=4, changed_by="bert"
        ),
    },
    {
        "u": StoredUnit(id="u", name="unit 0", kind="filter", parameters={"x": "^[0-9]+$"}),
        "v": StoredUnit(id="v", name="unit 0", kind="weight", is_enabled=False, description="d"),
    },
)


def entry(number: int = 1, **fields: Any) -> AuditEntry:
    known: dict[str, Any] = {
        "at_s": AT_S,
        "user": "anna",
        "action": "policy.create",
        "subject": POLICY,
    }
    return AuditEntry(id=str(number), **{**known, **fields})


def fill(archive: SqlArchive) -> None:
    """One of everything."""
    assert archive.keep(DOCUMENTS, [entry()], 1)


@pytest.fixture
def archive(database_url) -> Any:
    with opened(database_url) as archive:
        yield archive


# Copies


def test_an_empty_archive_says_so(archive):
    state = archive.state()
    assert (state.number, state.last) == (0, None)
    assert archive.documents() == Documents()
    assert archive.audit() == []
    archive.keep(Documents(), [], 1)
    assert archive.state() == ArchiveState(state.id, 1, None)


def test_documents_come_back_as_they_were_copied(archive):
    fill(archive)
    assert archive.documents() == DOCUMENTS
    assert archive.state()[1:] == (1, entry())


def test_a_copy_is_made_once(archive):
    fill(archive)
    assert not archive.keep(Documents(), [entry()], 1)
    assert archive.documents() == DOCUMENTS
    assert archive.keep(Documents(), [entry(1), entry(2), entry(3)], 3)
    assert archive.documents() == Documents()
    assert archive.audit() == [entry(1), entry(2), entry(3)]


def test_of_many_that_copy_the_newest_stays(archive):
    """Each has the book as it was after some entry."""

    def keep(number: int) -> bool:
        name = structs.replace(DOCUMENT, version=number)
        documents = Documents({POLICY: StoredPolicy(document=name)})
        return archive.keep(documents, [entry(each) for each in range(1, number + 1)], number)

    with Threads(5) as pool:
        kept = list(pool.map(keep, [3, 1, 5, 2, 5, 4, 5, 1, 3, 5]))
    assert any(kept)
    assert archive.documents().policies[POLICY].document.version == 5
    assert archive.audit() == [entry(number) for number in range(1, 6)]


def test_names_may_be_exchanged(archive):
    one, two = (ClusterPolicy(id=each, name=each, version=1) for each in ("one", "two"))
    policies = {each.id: StoredPolicy(document=each) for each in (one, two)}
    archive.keep(Documents(policies), [], 1)
    policies = {
        "one": StoredPolicy(document=structs.replace(one, name="TWO", version=2)),
        "two": StoredPolicy(document=structs.replace(two, name="one", version=2)),
    }
    archive.keep(Documents(policies), [], 2)
    assert archive.documents().policies == policies


STATES = [
    Documents(),
    DOCUMENTS,
    structs.replace(
        DOCUMENTS,
        policies={POLICY: DOCUMENTS.policies[POLICY]},
        attachments={"west": structs.replace(DOCUMENTS.attachments["west"], version=5)},
        units={"u": structs.replace(DOCUMENTS.units["u"], is_enabled=False)},
    ),
    structs.replace(DOCUMENTS, attachments={}),
    structs.replace(
        DOCUMENTS,
        attachments={"north": Attachment(cluster="north", policy_id=RICH.id)},
        units={},
    ),
]


def test_any_copy_follows_on_any_other(archive):
    for number, documents in enumerate(
        itertools.chain.from_iterable(itertools.product(STATES, repeat=2)), 1
    ):
        archive.keep(documents, [], number)
        assert archive.documents() == documents


def test_a_large_document_and_its_audit_are_stored(archive):
    filters = tuple(
        FilterUse(unit=f"unit {number}", parameters={"a": "x" * 4096}) for number in range(200)
    )
    large = StoredPolicy(document=structs.replace(DOCUMENT, filters=filters))
    archive.keep(Documents({POLICY: large}), [entry(after="ß" * 1_000_000)], 1)
    assert archive.documents().policies[POLICY] == large
    assert len(archive.audit()[0].after or "") == 1_000_000


# The audit


@pytest.mark.parametrize("field", ["user", "origin", "action", "subject", "reason"])
def test_an_entry_with_a_long_text_is_cut_not_lost(archive, field):
    long: dict[str, Any] = {field: "x" * 5000}
    archive.keep(Documents(), [entry(**long)], 1)
    [found] = archive.audit()
    assert 60 <= len(getattr(found, field)) <= 4096


def test_the_audit_is_read_in_pages_and_by_what_is_wanted(archive):
    entries = [
        entry(1, user="anna", action="a", subject="s0", at_s=100.0, after='{"a": "✓ 🙂"}'),
        entry(2, user="bert", action="a", subject="s1", at_s=101.0, before="{}"),
        entry(3, user="anna", action="b", subject="s2", at_s=102.0, origin="10.0.0.1"),
        entry(4, user="anna", action="a", at_s=103.0, result="refused", reason="no right"),
        entry(5, user="carl", action="c", subject="", at_s=99.0),
    ]
    archive.keep(Documents(), entries, 5)
    assert archive.audit() == entries
    assert archive.audit(limit=2) == entries[:2]
    assert archive.audit(after="2", limit=2) == entries[2:4]
    assert archive.audit(after="5") == []
    for wanted, found in (
        ({"user": "anna"}, "134"),
        ({"user": "anna", "action": "a"}, "14"),
        ({"user": "Anna"}, ""),
        ({"subject": "s1"}, "2"),
        ({"subject": ""}, "5"),
        ({"result": "refused"}, "4"),
        ({"since_s": 101.0}, "234"),
        ({"until_s": 101.0}, "15"),
        ({"since_s": 101.0, "until_s": 103.0, "user": "anna"}, "3"),
    ):
        criteria = AuditFilter(**wanted)
        assert "".join(each.id for each in archive.audit(criteria)) == found, wanted
        assert [each for each in entries if criteria.admits(each)] == archive.audit(criteria)
    assert archive.audit(AuditFilter(user="anna"), after="2", limit=1) == [entries[2]]
    with pytest.raises(RequestError, match="marker"):
        archive.audit(after="x")


def test_old_entries_are_purged_oldest_first(archive):
    archive.keep(Documents(), [entry(n, at_s=100.0 + n) for n in range(1, 6)], 5)
    assert archive.purge_audit(before_s=104.0, limit=2) == 2
    assert [each.id for each in archive.audit()] == ["3", "4", "5"]
    assert archive.purge_audit(before_s=104.0, limit=2) == 1
    assert archive.purge_audit(before_s=104.0, limit=2) == 0
    assert archive.purge_audit(before_s=1000.0, limit=10) == 2
    assert archive.state()[1:] == (5, None)
    assert archive.keep(Documents(), [entry(6)], 6)


# The schema


def broken(table: Any, **values: Any) -> Any:
    """A row of the table as ``fill`` makes it, with other values."""
    rows: dict[Any, dict[str, Any]] = {
        policy: {
            "id": "q", "name": "q", "name_key": "q", "document": "{}", "version": 1,
            "changed_by": "", "changed_at_s": 0.0,
        },
        policy_cluster: {
            "cluster": "north", "policy_id": POLICY, "parameters": "{}", "version": 1,
            "changed_by": "", "changed_at_s": 0.0,
        },
        policy_unit: {
            "id": "w", "name": "w", "kind": "filter", "description": "", "is_enabled": True,
            "parameters": "{}",
        },
    }  # fmt: skip
    return insert(table).values({**rows[table], **values})


BROKEN = {
    "a policy of version 0": broken(policy, version=0),
    "a name that is used": broken(policy, name_key="policy 1"),
    "an empty name": broken(policy, name=""),
    "an id that is used": broken(policy, id=POLICY),
    "a unit of a kind that is none": broken(policy_unit, kind="dice"),
    "an attachment to nothing": broken(policy_cluster, policy_id=None),
    "an attachment to two policies": broken(policy_cluster, built_in_policy="none"),
    "an attachment to a policy that is gone": broken(policy_cluster, policy_id="gone"),
    "an attachment of version 0": broken(policy_cluster, version=0),
    "a second attachment": broken(policy_cluster, cluster="east"),
    "a unit twice": broken(policy_unit, name="unit 0"),
    "the removal of an attached policy": delete(policy),
    "a version that falls below 1": update(policy).values(version=0),
}


def test_the_database_itself_refuses_what_breaks_a_rule(archive):
    fill(archive)
    refused = []
    for what, statement in BROKEN.items():
        with pytest.raises(ArchiveUnavailable) as error:
            with archive.database.writing() as connection:
                connection.execute(statement)
        assert isinstance(error.value.__cause__, DBAPIError)
        refused.append(what)
    assert refused == list(BROKEN)
    with archive.database.writing() as connection:  # the rows are right but for what is broken
        for table in (policy, policy_cluster, policy_unit):
            connection.execute(broken(table))


# Migrations


@pytest.fixture(params=DATABASES)
def empty(request, tmp_path) -> Any:
    """A database without a schema."""
    found = Database(settings(new_database(request, request.param, tmp_path)))
    yield found
    found.close()


def test_migrations_go_down_and_up_with_data(empty):
    PolicySchema(empty).upgrade()
    PolicySchema(empty).check()
    assert PolicySchema(empty).current() == newest()
    url = empty._url.render_as_string(hide_password=False)
    with opened(url) as archive:
        fill(archive)
        PolicySchema(empty).downgrade("0002")
        with empty.reading() as connection:
            uses = connection.exec_driver_sql("SELECT policy_id, unit_id FROM policy_user_unit")
            assert set(map(tuple, uses)) == {(POLICY, "u"), (POLICY, "v")}
        with pytest.raises(ConfigError, match=r"has schema version 0002.*db upgrade"):
            PolicySchema(empty).check()
        PolicySchema(empty).upgrade()
        assert archive.documents() == DOCUMENTS
        assert archive.state()[1:] == (1, entry())  # what was there before any book
        PolicySchema(empty).downgrade("0001")
        PolicySchema(empty).upgrade()
        assert archive.documents() == DOCUMENTS
        assert archive.audit() == []  # what only the newer version could hold
        PolicySchema(empty).downgrade(BASE)
        with pytest.raises(ArchiveUnavailable):
            archive.documents()
        PolicySchema(empty).upgrade()
        assert archive.documents() == Documents()


def test_an_unknown_version_is_refused_with_the_known_ones(empty):
    with pytest.raises(ConfigError, match="versions are base, 0001, 0002, 0003"):
        PolicySchema(empty).upgrade("9999")
    assert PolicySchema(empty).current() == BASE


def test_a_database_of_a_newer_program_is_named(empty):
    PolicySchema(empty).upgrade()
    with empty.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(ConfigError, match="made by a newer program"):
        PolicySchema(empty).check()


# Outages


@pytest.mark.parametrize("kind", [PostgresServer, MariaServer])
def test_a_server_that_goes_away_is_named_and_found_again(kind, make_open_directory):
    with kind(make_open_directory()) as server:
        with opened(server.create_database()) as archive:
            PolicySchema(archive.database).upgrade()
            fill(archive)
            server.kill()
            for failing in (archive.documents, lambda: archive.keep(DOCUMENTS, [], 2)):
                with pytest.raises(ArchiveUnavailable, match=r"127\.0\.0\.1") as refused:
                    failing()
                assert "secret" not in str(refused.value)
            server.start()
            assert archive.documents() == DOCUMENTS
            assert archive.keep(DOCUMENTS, [], 2)


def test_a_pool_without_a_free_connection_names_its_option(databases):
    with opened(databases.emptied("sqlite"), pool_size=1, pool_timeout_s=0.01) as archive:
        with archive.database.reading():
            with pytest.raises(ArchiveUnavailable, match=r"\[policy_store\] pool_size"):
                archive.documents()
        assert archive.documents() == Documents()


def test_a_connection_that_breaks_in_a_transaction_changes_nothing(database_url):
    with opened(database_url) as archive:
        fill(archive)

        def broken_off(connection: Any) -> None:
            connection.execute(delete(policy_cluster))
            connection.connection.dbapi_connection.close()
            connection.execute(select(policy))

        with pytest.raises((ArchiveUnavailable, sqlite3.ProgrammingError)):
            archive.database.write(broken_off)
        assert archive.documents() == DOCUMENTS


def test_a_locked_sqlite_file_is_an_error_that_says_so(databases):
    url = databases.emptied("sqlite")
    with opened(url) as holder, opened(url, lock_timeout_s=0.05) as archive:
        fill(holder)
        with holder.database.writing():
            with pytest.raises(ArchiveUnavailable, match="database is locked"):
                archive.keep(DOCUMENTS, [], 2)
            assert archive.documents() == DOCUMENTS  # readers do not wait for a writer
        assert archive.keep(DOCUMENTS, [], 2)


@pytest.mark.parametrize(
    ("kind", "question", "expected"),
    [
        ("postgresql", "SHOW lock_timeout", "2500ms"),
        ("postgresql", "SHOW statement_timeout", "7s"),
        ("postgresql", "SHOW transaction_isolation", "repeatable read"),
        ("mariadb", "SELECT @@innodb_lock_wait_timeout", 2),
        ("mariadb", "SELECT @@tx_isolation", "REPEATABLE-READ"),
    ],
)
def test_a_server_knows_for_how_long_a_session_waits(databases, kind, question, expected):
    url = databases.emptied(kind)
    with opened(url, lock_timeout_s=2.5, statement_timeout_s=7.0) as archive:
        with archive.database.reading() as connection:
            assert connection.exec_driver_sql(question).scalar() == expected


def test_a_full_sqlite_file_is_an_error_that_says_so(tmp_path):
    with opened(f"sqlite:///{tmp_path / 'policies.sqlite'}") as archive:  # without free pages
        PolicySchema(archive.database).upgrade()
        fill(archive)

        def fill_up(connection: Any) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            try:
                row = archives._entry_row(entry(2, after="x" * 1_000_000))
                connection.execute(insert(audit), row)
            finally:
                connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")

        with pytest.raises(ArchiveUnavailable, match="full"):
            archive.database.write(fill_up)
        assert archive.audit() == [entry()]
        assert archive.keep(DOCUMENTS, [entry(2)], 2)


def test_the_sqlite_file_is_its_users_alone_and_survives_a_power_failure(tmp_path):
    path = tmp_path / "new" / "policies.sqlite"
    with opened(f"sqlite:///{path}") as archive:
        PolicySchema(archive.database).upgrade()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with archive.database.reading() as connection:
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }
        assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "not a URL"),
        ("policies.sqlite", "not a URL"),
        ("oracle://host/db", "'oracle' is not supported"),
        ("sqlite://", "needs the path of a file"),
        ("sqlite:///:memory:", "needs the path of a file"),
        ("sqlite:////proc/none/policies.sqlite", "cannot be written"),
    ],
)
def test_a_connection_that_cannot_be_used_is_named(url, problem):
    with pytest.raises(ConfigError, match=rf"\[policy_store\] connection: .*{problem}"):
        SqlArchive(settings(url))


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_mariadb_has_several_schemes(scheme):
    with opened(f"{scheme}://user:secret@host/db") as archive:
        assert archive.database.name == "mariadb+pymysql://user:***@host/db"


def test_a_transaction_that_loses_a_race_is_repeated_a_bounded_number_of_times(databases):
    with opened(databases.emptied("sqlite")) as archive:
        fill(archive)
        attempts = []

        def collide(connection: Any) -> None:
            attempts.append(1)
            connection.execute(broken(policy, id=POLICY))

        with pytest.raises(ArchiveUnavailable, match="UNIQUE"):
            archive.database.write(collide)
        assert len(attempts) == sql_database._MAX_ATTEMPTS
