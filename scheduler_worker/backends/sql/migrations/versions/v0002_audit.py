"""the audit"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("origin", sa.String(255), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("before", LONG_TEXT),
        sa.Column("after", LONG_TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sa.CheckConstraint("result IN ('done', 'refused')", name="result"),
        sqlite_autoincrement=True,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_charset="utf8mb4",
        mysql_collate="utf8mb4_nopad_bin",
        mariadb_collate="utf8mb4_nopad_bin",
    )


def downgrade() -> None:
    """Drop the tables with all that they hold."""
    op.drop_table("audit")
