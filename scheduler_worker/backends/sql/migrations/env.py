"""How Alembic runs the migrations: on the connection that ``migrate.py`` has opened and locked."""

from alembic import context
from sqlalchemy import MetaData

_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name, so that a migration can change it on every database."""

_connection = context.config.attributes["connection"]
context.configure(
    connection=_connection,
    target_metadata=MetaData(naming_convention=_NAMING),
    # SQLite can undo changes of tables too; Alembic does not count on it by itself.
    transactional_ddl=_connection.dialect.name != "mariadb",
)
with context.begin_transaction():
    context.run_migrations()
