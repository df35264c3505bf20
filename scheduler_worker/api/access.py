"""The check of a caller's right; what is refused is recorded in the audit."""

from __future__ import annotations

from collections.abc import Collection

from scheduler_worker.api.rights import Action, Rights
from scheduler_worker.api.sessions import Caller
from scheduler_worker.errors import Forbidden
from scheduler_worker.service.policies.audit import Actor, AuditLog


def actor_of(caller: Caller) -> Actor:
    """Who is named in the audit."""
    return Actor(caller.name, caller.address)


class Access:
    """Lets a caller do something, or not."""

    def __init__(self, rights: Rights, audit: AuditLog) -> None:
        self._rights = rights
        self._audit = audit

    def check(
        self, caller: Caller, action: Action, subject: str, clusters: Collection[str] | None = None
    ) -> None:
        """Raises Forbidden unless the caller may do it in each of the clusters; None: anywhere."""
        if self._rights.may(caller, action, clusters):
            return
        where = f" in {', '.join(sorted(clusters))}" if clusters else ""
        reason = f"the user has no right to {action.value}{where}"
        self._audit.refused(actor_of(caller), action.value, subject, reason)
        raise Forbidden(f"User {caller.name} is not authorized: {reason}.")
