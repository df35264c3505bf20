"""policies, their units and parameters, and the attachments of clusters"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

NAME = 255
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KINDS = "kind IN ('filter', 'weight', 'balance', 'selector')"
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
NUMBERED = OPTIONS | {"sqlite_autoincrement": True}


def upgrade() -> None:
    """Create the tables."""
    _create_units()
    _create_policies()
    _create_uses()
    _create_attachments()
    _create_parameters()


def _create_units() -> None:
    op.create_table(
        "policy_unit",
        sa.Column("id", sa.String(NAME), nullable=False),
        sa.Column("name", sa.String(NAME), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("parameters", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_unit"),
        sa.UniqueConstraint("name", "kind", name="uq_policy_unit_name_kind"),
        sa.CheckConstraint(KINDS, name="kind"),
        **OPTIONS,
    )


def _create_policies() -> None:
    op.create_table(
        "policy",
        sa.Column("id", sa.String(NAME), nullable=False),
        sa.Column("name", sa.String(NAME), nullable=False),
        sa.Column("name_key", sa.String(3 * NAME), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_locked", sa.Boolean, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column(
            "the_default",
            sa.Integer,
            sa.Computed("CASE WHEN is_default THEN 1 END", persisted=True),
        ),
        *_versioned(),
        sa.PrimaryKeyConstraint("id", name="pk_policy"),
        sa.UniqueConstraint("name_key", name="uq_policy_name_key"),
        sa.UniqueConstraint("the_default", name="uq_policy_the_default"),
        sa.CheckConstraint("name <> ''", name="name"),
        **OPTIONS,
    )


def _create_uses() -> None:
    op.create_table(
        "policy_policy_unit",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("policy_id", sa.String(NAME), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("unit", sa.String(NAME), nullable=False),
        sa.Column("unit_id", sa.String(NAME)),
        sa.Column("label", sa.String(NAME)),
        sa.Column("position", sa.SmallInteger),
        sa.Column("edge", sa.SmallInteger, sa.Computed("NULLIF(position, 0)", persisted=True)),
        sa.Column("factor", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_policy_policy_unit"),
        _owner("policy_policy_unit", "policy_id", "policy.id", "CASCADE"),
        _owner("policy_policy_unit", "unit_id", "policy_unit.id", "RESTRICT"),
        sa.UniqueConstraint(
            "policy_id", "kind", "sequence", name="uq_policy_policy_unit_policy_id_kind_sequence"
        ),
        sa.UniqueConstraint("policy_id", "edge", name="uq_policy_policy_unit_policy_id_edge"),
        sa.CheckConstraint("sequence >= 0", name="sequence"),
        sa.CheckConstraint(KINDS, name="kind"),
        sa.CheckConstraint("kind IN ('filter', 'weight') OR sequence = 0", name="only_one"),
        sa.CheckConstraint("position IN (-1, 0, 1)", name="position"),
        sa.CheckConstraint(
            "(kind = 'filter' AND position IS NOT NULL) OR (kind <> 'filter' AND position IS NULL)",
            name="filter_position",
        ),
        sa.CheckConstraint("factor >= -1e308 AND factor <= 1e308", name="factor"),
        sa.CheckConstraint(
            "(kind = 'weight' AND factor IS NOT NULL) OR (kind <> 'weight' AND factor IS NULL)",
            name="weight_factor",
        ),
        **NUMBERED,
    )
    op.create_index("ix_policy_policy_unit_unit_id", "policy_policy_unit", ["unit_id"])


def _create_attachments() -> None:
    op.create_table(
        "policy_cluster",
        sa.Column("cluster", sa.String(128), nullable=False),
        sa.Column("policy_id", sa.String(NAME)),
        sa.Column("built_in_policy", sa.String(NAME)),
        *_versioned(),
        sa.PrimaryKeyConstraint("cluster", name="pk_policy_cluster"),
        _owner("policy_cluster", "policy_id", "policy.id", "RESTRICT"),
        sa.CheckConstraint(
            "(policy_id IS NULL AND built_in_policy IS NOT NULL)"
            " OR (policy_id IS NOT NULL AND built_in_policy IS NULL)",
            name="one_policy",
        ),
        **OPTIONS,
    )
    op.create_index("ix_policy_cluster_policy_id", "policy_cluster", ["policy_id"])


def _create_parameters() -> None:
    table = "policy_parameter"
    op.create_table(
        table,
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("policy_id", sa.String(NAME)),
        sa.Column("use_id", NUMBER),
        sa.Column("cluster", sa.String(128)),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_parameter"),
        _owner(table, "policy_id", "policy.id", "CASCADE"),
        _owner(table, "use_id", "policy_policy_unit.id", "CASCADE"),
        _owner(table, "cluster", "policy_cluster.cluster", "CASCADE"),
        sa.UniqueConstraint("policy_id", "name", name="uq_policy_parameter_policy_id_name"),
        sa.UniqueConstraint("use_id", "name", name="uq_policy_parameter_use_id_name"),
        sa.UniqueConstraint("cluster", "name", name="uq_policy_parameter_cluster_name"),
        sa.CheckConstraint(
            "CASE WHEN policy_id IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN use_id IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN cluster IS NULL THEN 0 ELSE 1 END = 1",
            name="one_owner",
        ),
        **NUMBERED,
    )


def downgrade() -> None:
    """Drop the tables with all that they hold."""
    for table in (
        "policy_parameter",
        "policy_cluster",
        "policy_policy_unit",
        "policy",
        "policy_unit",
    ):
        op.drop_table(table)


def _owner(table: str, column: str, target: str, on_delete: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [target], name=f"fk_{table}_{column}", ondelete=on_delete
    )


def _versioned() -> list[Any]:
    return [
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.String(NAME), nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.CheckConstraint("version >= 1", name="version"),
    ]
