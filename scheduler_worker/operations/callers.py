"""Who asks for an operation, and which roles they have."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

Role = Literal["reader", "policy_editor", "administrator"]
"""Each may do what those before it may."""
ROLES: tuple[Role, ...] = ("reader", "policy_editor", "administrator")


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A role in a cluster, or in the whole system."""

    role: Role
    cluster: str | None = None


class Caller(NamedTuple):
    """A user who has proved who they are."""

    name: str
    grants: tuple[Grant, ...]
    address: str
    """The source of the request; the audit names it."""
    scope: Mapping[str, Any] = {}
    """What the rules see of a token of another service, in place of the grants."""


def included(names: Iterable[str], roles: Mapping[str, Role]) -> list[str]:
    """Our roles that the roles of a Keystone token stand for, with all that these include."""
    meant = {roles.get(name.strip()) for name in names}
    count = max((number for number, role in enumerate(ROLES, 1) if role in meant), default=0)
    return list(ROLES[:count])
