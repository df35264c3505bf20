"""The tables of the policy store, as statements name them; ``migrations/`` makes them.

Names and texts compare by code points, so that all databases agree on what is equal; ``name_key``
is the name without letter case.
"""

from sqlalchemy import Boolean, column, table

NAME = 255
"""Characters of a name, at most."""

policy_unit = table(
    "policy_unit",
    *map(column, ("id", "name", "kind", "description", "parameters")),
    column("is_enabled", Boolean),
)
"""User units; ``parameters`` is a JSON object of names and regexes."""
policy = table(
    "policy",
    *map(column, ("id", "name", "name_key", "document", "version", "changed_by", "changed_at_s")),
)
"""Policies, each a JSON document."""
policy_user_unit = table("policy_user_unit", column("policy_id"), column("unit_id"))
"""The user units that a policy uses; the worker's own are code."""
policy_cluster = table(
    "policy_cluster",
    *map(column, ("cluster", "policy_id", "built_in_policy", "parameters", "version")),
    *map(column, ("changed_by", "changed_at_s")),
)
"""The attachments: to a stored policy, or to one that is code; ``parameters`` is a JSON object."""
audit = table(
    "audit",
    *map(column, ("id", "at_s", "user_name", "origin", "action", "subject", "result", "reason")),
    *map(column, ("before", "after")),
)
"""Every change, and every attempt that was refused; rows are only added."""
