"""The check of a caller's right; what is refused is recorded in the audit."""

from collections.abc import Collection

from scheduler_worker.errors import Forbidden
from scheduler_worker.operations.callers import Caller, Right
from scheduler_worker.operations.rights import Rights
from scheduler_worker.service.policies.audit import Actor, Audit
from scheduler_worker.wording import listed


class Access:
    """Lets a caller do something, or not."""

    def __init__(self, rights: Rights, audit: Audit) -> None:
        self._rights = rights
        self.audit = audit

    @staticmethod
    def actor(caller: Caller) -> Actor:
        """Who is named in the audit."""
        return Actor(caller.name, caller.address)

    def check(
        self, caller: Caller, action: Right, subject: str, clusters: Collection[str] | None = None
    ) -> None:
        """Raises Forbidden unless the caller may do it in each of the clusters; None: anywhere."""
        if self._rights.may(caller, action, clusters):
            return
        where = f" in {', '.join(sorted(clusters))}" if clusters else ""
        lack = f"the user has no right to {action.value}"
        self.audit.refused(self.actor(caller), action.value, subject, lack + where)
        raise Forbidden(
            f"User {caller.name} is not authorized: {lack}{self._held(caller, action)}."
        )

    def _held(self, caller: Caller, action: Right) -> str:
        """The clusters for which the caller has the right; the answer names no other cluster,
        unlike the audit.
        """
        own = {grant.cluster for grant in caller.grants if grant.cluster is not None}
        held = sorted(cluster for cluster in own if self._rights.may(caller, action, [cluster]))
        return f", except in {listed(held)}" if held else ""
