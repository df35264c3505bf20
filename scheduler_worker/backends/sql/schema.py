"""The tables of the policy store. The database itself refuses what breaks their rules.

``migrations/`` creates them, and a test compares the two. Engines, collations and how rows are
numbered are there alone: they matter to the creation of a table only. Names and texts compare by
code points, so that all databases agree on what is equal; ``name_key`` is the name without letter
case.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
"""Every constraint has a name, so that a migration can change it on every database."""
NAME = 255
NAME_KEY = 3 * NAME
"""A letter without case may be up to three: ``ß`` becomes ``ss``."""
LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
NUMBER = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows only in a column of this type."""

metadata = MetaData(naming_convention=NAMING)


def _versioned() -> list[Column[Any]]:
    return [
        Column("version", BigInteger, CheckConstraint("version >= 1", "version"), nullable=False),
        Column("changed_by", String(NAME), nullable=False),
        Column("changed_at", Double, nullable=False),
    ]


policy_unit = Table(
    "policy_unit",
    metadata,
    Column("id", String(NAME), primary_key=True),
    Column("name", String(NAME), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("description", Text, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("parameters", LONG_TEXT, nullable=False),
    UniqueConstraint("name", "kind"),
    CheckConstraint("kind IN ('filter', 'weight', 'balance', 'selector')", "kind"),
)
"""User units; ``parameters`` is a JSON object of names and regexes."""

policy = Table(
    "policy",
    metadata,
    Column("id", String(NAME), primary_key=True),
    Column("name", String(NAME), nullable=False),
    Column("name_key", String(NAME_KEY), nullable=False),
    Column("description", Text, nullable=False),
    Column("is_locked", Boolean, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("the_default", Integer, Computed("CASE WHEN is_default THEN 1 END", persisted=True)),
    *_versioned(),
    UniqueConstraint("name_key"),
    UniqueConstraint("the_default"),
    CheckConstraint("name <> ''", "name"),
)
"""``the_default`` is unique, and NULL for all but one: there is at most one default."""

policy_policy_unit = Table(
    "policy_policy_unit",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("policy_id", ForeignKey("policy.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("unit", String(NAME), nullable=False),
    Column("unit_id", ForeignKey("policy_unit.id", ondelete="RESTRICT"), index=True),
    Column("label", String(NAME)),
    Column("position", SmallInteger),
    Column("edge", SmallInteger, Computed("NULLIF(position, 0)", persisted=True)),
    Column("factor", Double),
    UniqueConstraint("policy_id", "kind", "sequence"),
    UniqueConstraint("policy_id", "edge"),
    CheckConstraint("sequence >= 0", "sequence"),
    CheckConstraint("kind IN ('filter', 'weight', 'balance', 'selector')", "kind"),
    CheckConstraint("kind IN ('filter', 'weight') OR sequence = 0", "only_one"),
    CheckConstraint("position IN (-1, 0, 1)", "position"),
    CheckConstraint(
        "(kind = 'filter' AND position IS NOT NULL) OR (kind <> 'filter' AND position IS NULL)",
        "filter_position",
    ),
    CheckConstraint("factor >= -1e308 AND factor <= 1e308", "factor"),
    CheckConstraint(
        "(kind = 'weight' AND factor IS NOT NULL) OR (kind <> 'weight' AND factor IS NULL)",
        "weight_factor",
    ),
)
"""The uses of units. ``position`` is -1 for the first, 1 for the last, else 0. ``edge`` is NULL for
all but those two, and unique. ``unit_id`` is that of a user unit; the worker's own are code."""

policy_cluster = Table(
    "policy_cluster",
    metadata,
    Column("cluster", String(128), primary_key=True),
    Column("policy_id", ForeignKey("policy.id", ondelete="RESTRICT"), index=True),
    Column("built_in_policy", String(NAME)),
    *_versioned(),
    CheckConstraint(
        "(policy_id IS NULL AND built_in_policy IS NOT NULL) OR "
        "(policy_id IS NOT NULL AND built_in_policy IS NULL)",
        "one_policy",
    ),
)
"""The attachments: to a stored policy, or to one that is code."""

policy_parameter = Table(
    "policy_parameter",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("policy_id", ForeignKey("policy.id", ondelete="CASCADE")),
    Column("use_id", ForeignKey("policy_policy_unit.id", ondelete="CASCADE")),
    Column("cluster", ForeignKey("policy_cluster.cluster", ondelete="CASCADE")),
    Column("name", String(128), nullable=False),
    Column("value", Text, nullable=False),
    UniqueConstraint("policy_id", "name"),
    UniqueConstraint("use_id", "name"),
    UniqueConstraint("cluster", "name"),
    CheckConstraint(
        "CASE WHEN policy_id IS NULL THEN 0 ELSE 1 END"
        " + CASE WHEN use_id IS NULL THEN 0 ELSE 1 END"
        " + CASE WHEN cluster IS NULL THEN 0 ELSE 1 END = 1",
        "one_owner",
    ),
)
"""Parameters of a policy, of one use of a unit, or of a cluster: of exactly one of the three."""

audit = Table(
    "audit",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("user_name", String(NAME), nullable=False),
    Column("origin", String(NAME), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject", String(NAME), nullable=False),
    Column("result", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("before", LONG_TEXT),
    Column("after", LONG_TEXT),
    CheckConstraint("result IN ('done', 'refused')", "result"),
)
"""Every change, and every attempt that was refused; rows are only added."""
