"""the archive of the book of documents: its id, and how far it is filled"""

import uuid

import sqlalchemy as sa
from alembic import op

from scheduler_worker.backends.sql.migrations.versions.v0001_policies import (
    NAME,
    OPTIONS,
    user_units,
)
from scheduler_worker.conversion import json_reader

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table with its row. The book itself knows which units its policies use."""
    made = op.create_table(
        "book",
        sa.Column("id", sa.String(NAME), primary_key=True),
        sa.Column("number", sa.BigInteger),
        **OPTIONS,
    )
    op.bulk_insert(made, [{"id": str(uuid.uuid4()), "number": None}])
    op.drop_table("policy_user_unit")


def downgrade() -> None:
    """Drop the table, note again which units policies use, and number entries by the database."""
    op.drop_table("book")
    if op.get_context().dialect.name == "postgresql":  # which has not seen the numbers of copies
        last = "(SELECT coalesce(max(id), 1) FROM audit)"
        op.execute(f"SELECT setval(pg_get_serial_sequence('audit', 'id'), {last})")
    op.create_table(*user_units(), **OPTIONS)
    units = sa.table("policy_unit", *map(sa.column, ("id", "name", "kind")))
    policies = sa.table("policy", *map(sa.column, ("id", "document")))
    uses = sa.table("policy_user_unit", *map(sa.column, ("policy_id", "unit_id")))
    connection = op.get_bind()
    by_use = {(unit.kind, unit.name): unit.id for unit in connection.execute(sa.select(units))}
    for policy in connection.execute(sa.select(policies)).all():
        document = json_reader(dict)(policy.document)
        used = [
            *(("filter", use["unit"]) for use in document.get("filters", ())),
            *(("weight", use["unit"]) for use in document.get("weights", ())),
            *(
                (kind, document[kind]["unit"])
                for kind in ("balance", "selector")
                if document.get(kind)
            ),
        ]
        for unit in {by_use[use] for use in used if use in by_use}:
            op.execute(sa.insert(uses).values(policy_id=policy.id, unit_id=unit))
