"""Policy stores on SQL: the schema's own constraints, migrations, processes that die, outages."""

import sqlite3
import stat
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from scheduler_worker.backends.sql import database as sql_database
from scheduler_worker.backends.sql import store as sql_store
from scheduler_worker.backends.sql.database import Database
from scheduler_worker.backends.sql.migrate import BASE, PolicySchema, newest
from scheduler_worker.backends.sql.store import (
    SqlPolicyStore,
    policy,
    policy_cluster,
    policy_unit,
    policy_user_unit,
)
from scheduler_worker.errors import ConfigError, PolicyStoreUnavailable
from scheduler_worker.model.policies import ClusterPolicy, FilterUse, WeightUse
from scheduler_worker.policy_store import NEW, Attachment, AuditEntry, StoredPolicy, StoredUnit
from tests.support.databases import MariaServer, PostgresServer

from .policy_stores import DATABASES, new_database, opened, settings

POLICY = "stored"
ENTRY = AuditEntry(at_s=1.0, user="anna", action="policy.create", subject=POLICY)
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


def fill(store: SqlPolicyStore) -> None:
    """One of everything."""
    store.put_units(
        [
            StoredUnit(id="u", name="unit 0", kind="filter"),
            StoredUnit(id="other", name="other", kind="filter"),
        ]
    )
    store.add(StoredPolicy(document=DOCUMENT), ENTRY)
    store.attach(
        Attachment(cluster="east", policy_id=POLICY, parameters={"of": "2"}),
        expected_version=NEW,
        audit=ENTRY,
    )


# The schema


def broken(table: Any, **values: Any) -> Any:
    """A row of the table as ``fill`` makes it, with other values."""
    rows: dict[Any, dict[str, Any]] = {
        policy: {
            "id": "q", "name": "q", "name_key": "q", "document": "{}", "version": 1,
            "changed_by": "", "changed_at_s": 0.0,
        },
        policy_user_unit: {"policy_id": POLICY, "unit_id": "other"},
        policy_cluster: {
            "cluster": "west", "policy_id": POLICY, "parameters": "{}", "version": 1,
            "changed_by": "", "changed_at_s": 0.0,
        },
        policy_unit: {
            "id": "v", "name": "v", "kind": "filter", "description": "", "is_enabled": True,
            "parameters": "{}",
        },
    }  # fmt: skip
    return insert(table).values({**rows[table], **values})


BROKEN = {
    "a policy of version 0": broken(policy, version=0),
    "a name that is used": broken(policy, name_key="policy 1"),
    "an empty name": broken(policy, name=""),
    "an id that is used": broken(policy, id=POLICY),
    "a use in no policy": broken(policy_user_unit, policy_id="gone"),
    "a use of a unit that is gone": broken(policy_user_unit, unit_id="gone"),
    "a unit of a kind that is none": broken(policy_unit, kind="dice"),
    "an attachment to nothing": broken(policy_cluster, policy_id=None),
    "an attachment to two policies": broken(policy_cluster, built_in_policy="none"),
    "an attachment to a policy that is gone": broken(policy_cluster, policy_id="gone"),
    "an attachment of version 0": broken(policy_cluster, version=0),
    "a second attachment": broken(policy_cluster, cluster="east"),
    "a unit twice": broken(policy_unit, name="unit 0"),
    "the removal of an attached policy": delete(policy),
    "the removal of a used unit": delete(policy_unit),
    "a version that falls below 1": update(policy).values(version=0),
}


def test_the_database_itself_refuses_what_breaks_a_rule(database_url):
    with opened(database_url) as store:
        fill(store)
        refused = []
        for what, statement in BROKEN.items():
            with pytest.raises(PolicyStoreUnavailable) as error:
                with store.database.writing() as connection:
                    connection.execute(statement)
            assert isinstance(error.value.__cause__, DBAPIError)
            refused.append(what)
        assert refused == list(BROKEN)
        with store.database.writing() as connection:  # the rows are right but for what is broken
            for table in (policy, policy_user_unit, policy_cluster, policy_unit):
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
    with opened(url) as store:
        fill(store)
        before = (store.policies(), store.attachments(), store.units())
        PolicySchema(empty).downgrade("0001")
        assert PolicySchema(empty).current() == "0001"
        assert (store.policies(), store.attachments(), store.units()) == before
        with pytest.raises(ConfigError, match=r"has schema version 0001.*db upgrade"):
            PolicySchema(empty).check()
        PolicySchema(empty).upgrade()
        assert (store.policies(), store.attachments(), store.units()) == before
        assert store.audit() == []  # what only the newer version could hold
        PolicySchema(empty).downgrade(BASE)
        with pytest.raises(PolicyStoreUnavailable):
            store.policies()
        PolicySchema(empty).upgrade()
        assert store.policies() == []


def test_an_unknown_version_is_refused_with_the_known_ones(empty):
    with pytest.raises(ConfigError, match="versions are base, 0001, 0002"):
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
        with opened(server.create_database()) as store:
            PolicySchema(store.database).upgrade()
            fill(store)
            before = store.policies()
            server.kill()
            for failing in (store.policies, lambda: store.record(ENTRY)):
                with pytest.raises(PolicyStoreUnavailable, match=r"127\.0\.0\.1") as refused:
                    failing()
                assert "secret" not in str(refused.value)
            server.start()
            assert store.policies() == before
            store.record(ENTRY)


def test_a_pool_without_a_free_connection_names_its_option(databases):
    with opened(databases.emptied("sqlite"), pool_size=1, pool_timeout_s=0.01) as store:
        with store.database.reading():
            with pytest.raises(PolicyStoreUnavailable, match=r"\[policy_store\] pool_size"):
                store.policies()
        assert store.policies() == []


def test_a_connection_that_breaks_in_a_transaction_changes_nothing(database_url):
    with opened(database_url) as store:
        fill(store)
        before = (store.policies(), store.audit())

        def broken_off(connection: Any) -> None:
            connection.execute(delete(policy_user_unit))
            connection.connection.dbapi_connection.close()
            connection.execute(select(policy))

        with pytest.raises((PolicyStoreUnavailable, sqlite3.ProgrammingError)):
            store.database.write(broken_off)
        assert (store.policies(), store.audit()) == before


def test_a_locked_sqlite_file_is_an_error_that_says_so(databases):
    url = databases.emptied("sqlite")
    with opened(url) as holder, opened(url, lock_timeout_s=0.05) as store:
        fill(holder)
        with holder.database.writing():
            with pytest.raises(PolicyStoreUnavailable, match="database is locked"):
                store.record(ENTRY)
            assert len(store.policies()) == 1  # readers do not wait for a writer
        store.record(ENTRY)


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
    with opened(url, lock_timeout_s=2.5, statement_timeout_s=7.0) as store:
        with store.database.reading() as connection:
            assert connection.exec_driver_sql(question).scalar() == expected


def test_a_full_sqlite_file_is_an_error_that_says_so(tmp_path):
    with opened(f"sqlite:///{tmp_path / 'policies.sqlite'}") as store:  # without free pages
        PolicySchema(store.database).upgrade()
        fill(store)
        before = (store.policies(), store.audit())

        def fill_up(connection: Any) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            try:
                large = structs.replace(ENTRY, after="x" * 1_000_000)
                sql_store._record(connection, large)
            finally:
                connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")

        with pytest.raises(PolicyStoreUnavailable, match="full"):
            store.database.write(fill_up)
        assert (store.policies(), store.audit()) == before
        store.record(ENTRY)


def test_the_sqlite_file_is_its_users_alone_and_survives_a_power_failure(tmp_path):
    path = tmp_path / "new" / "policies.sqlite"
    with opened(f"sqlite:///{path}") as store:
        PolicySchema(store.database).upgrade()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with store.database.reading() as connection:
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
        SqlPolicyStore(settings(url))


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql"])
def test_mariadb_has_several_schemes(scheme):
    with opened(f"{scheme}://user:secret@host/db") as store:
        assert store.database.name == "mariadb+pymysql://user:***@host/db"


def test_a_transaction_that_loses_a_race_is_repeated_a_bounded_number_of_times(databases):
    with opened(databases.emptied("sqlite")) as store:
        fill(store)
        attempts = []

        def collide(connection: Any) -> None:
            attempts.append(1)
            connection.execute(broken(policy, id=POLICY))

        with pytest.raises(PolicyStoreUnavailable, match="UNIQUE"):
            store.database.write(collide)
        assert len(attempts) == sql_database._MAX_ATTEMPTS
