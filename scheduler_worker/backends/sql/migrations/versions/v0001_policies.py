"""policies, their user units, and the attachments of clusters"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

NAME = 255
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in ("mysql", "mariadb")
    for name, value in (
        ("engine", "InnoDB"),
        ("charset", "utf8mb4"),
        ("collate", "utf8mb4_nopad_bin"),
    )
}
"""MariaDB's default would take a name and the same name with a space, or an accent, for equal."""


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "policy_unit",
        sa.Column("id", sa.String(NAME), primary_key=True),
        sa.Column("name", sa.String(NAME), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("parameters", LONG_TEXT, nullable=False),
        sa.UniqueConstraint("name", "kind"),
        sa.CheckConstraint("kind IN ('filter', 'weight', 'balance', 'selector')", "kind"),
        **OPTIONS,
    )
    op.create_table(
        "policy",
        sa.Column("id", sa.String(NAME), primary_key=True),
        sa.Column("name", sa.String(NAME), nullable=False),
        # A letter without case may be up to three: ``ß`` becomes ``ss``.
        sa.Column("name_key", sa.String(3 * NAME), nullable=False, unique=True),
        sa.Column("document", LONG_TEXT, nullable=False),
        *_versioned(),
        sa.CheckConstraint("name <> ''", "name"),
        **OPTIONS,
    )
    op.create_table(*user_units(), **OPTIONS)
    op.create_table(
        "policy_cluster",
        sa.Column("cluster", sa.String(128), primary_key=True),
        _reference("policy_id", "policy.id", index=True),
        sa.Column("built_in_policy", sa.String(NAME)),
        sa.Column("parameters", LONG_TEXT, nullable=False),
        *_versioned(),
        sa.CheckConstraint("(policy_id IS NULL) <> (built_in_policy IS NULL)", "one_policy"),
        **OPTIONS,
    )


def downgrade() -> None:
    """Drop the tables with all that they hold."""
    for table in ("policy_cluster", "policy_user_unit", "policy", "policy_unit"):
        op.drop_table(table)


def user_units() -> tuple[Any, ...]:
    """The name and columns of the table of user units that policies use."""
    return (
        "policy_user_unit",
        _reference("policy_id", "policy.id", primary_key=True, ondelete="CASCADE"),
        _reference("unit_id", "policy_unit.id", primary_key=True, index=True),
    )


def _reference(
    name: str, target: str, *, ondelete: str = "RESTRICT", **options: Any
) -> sa.Column[str]:
    return sa.Column(name, sa.String(NAME), sa.ForeignKey(target, ondelete=ondelete), **options)


def _versioned() -> list[Any]:
    return [
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.String(NAME), nullable=False),
        sa.Column("changed_at_s", sa.Double, nullable=False),
        sa.CheckConstraint("version >= 1", "version"),
    ]
