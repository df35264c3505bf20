"""Who asks for an operation, which roles they have, and what they may have a right to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from scheduler_worker.service.documents.audit import Actor

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

    @property
    def actor(self) -> Actor:
        """Who is named in the audit."""
        from scheduler_worker.service.documents.audit import Actor

        return Actor(self.name, self.address)


def included(names: Iterable[str], roles: Mapping[str, Role]) -> list[str]:
    """Our roles that the roles of a Keystone token stand for, with all that these include."""
    meant = {roles.get(name.strip()) for name in names}
    count = max((number for number, role in enumerate(ROLES, 1) if role in meant), default=0)
    return list(ROLES[:count])


class Right(StrEnum):
    """What a rule permits; :mod:`scheduler_worker.operations.rights` has the rules."""

    READ = "api:read"
    CREATE = "policy:create"
    EDIT = "policy:edit"
    DELETE = "policy:delete"
    ATTACH = "cluster:attach"
    REHEARSE = "rehearsal:run"
    DELETE_UNIT = "unit:delete"
    SWITCH_UNIT = "unit:switch"
    RELEASE = "reservation:release"
    SWITCH_BALANCING = "balancing:switch"
    EDIT_TUNING = "tuning:edit"
    DRAIN = "worker:drain"
    READ_AUDIT = "audit:read"
