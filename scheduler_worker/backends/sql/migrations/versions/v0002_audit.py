"""the audit"""

import sqlalchemy as sa
from alembic import op

from scheduler_worker.backends.sql.migrations.versions.v0001_policies import (
    LONG_TEXT,
    NAME,
    OPTIONS,
)

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows only in a column of this type."""


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("user_name", sa.String(NAME), nullable=False),
        sa.Column("origin", sa.String(NAME), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(NAME), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("before", LONG_TEXT),
        sa.Column("after", LONG_TEXT),
        sa.CheckConstraint("result IN ('done', 'refused')", "result"),
        sqlite_autoincrement=True,
        **OPTIONS,
    )


def downgrade() -> None:
    """Drop the table with all that it holds."""
    op.drop_table("audit")
