"""How Alembic runs the migrations: on the connection that ``migrate.py`` has opened and locked."""

from alembic import context

from scheduler_worker.backends.sql.schema import metadata

_connection = context.config.attributes["connection"]
context.configure(
    connection=_connection,
    target_metadata=metadata,
    # SQLite can undo changes of tables too; Alembic does not count on it by itself.
    transactional_ddl=_connection.dialect.name != "mariadb",
)
with context.begin_transaction():
    context.run_migrations()
