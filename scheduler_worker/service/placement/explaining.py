"""The questions that only read: why hosts would be chosen, and what would be decided now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import BackendError, NoValidHost
from scheduler_worker.model.decisions import Explanation
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.placement.asking import Asking
from scheduler_worker.service.placement.candidates import ClusterChoice
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.explanations import explain_request
from scheduler_worker.service.placement.freshness import Freshness
from scheduler_worker.service.placement.rehearsal import Rehearsal, rehearse
from scheduler_worker.waiters import complete

_EXPLAINED_IN_S = 10.0
"""How long an explanation waits for Placement, in a slot."""


class Explaining(NamedTuple):
    """Answers by what decisions would be made by: hosts, Placement (None: it is not asked), feed
    (None: hosts report themselves).
    """

    deps: PlacementDependencies
    choice: ClusterChoice
    asking: Asking | None
    freshness: Freshness | None

    def explain(self, request: Request, *, hosts: Sequence[str], limit: int) -> Explanation:
        """Why hosts would be chosen or not, as :func:`explain_request` describes."""
        why = self.freshness and self.freshness.unready()
        if not why:
            try:
                request = self._answered(request)
            except BackendError as error:
                why = str(error)
        found = explain_request(self.deps, self.choice, request, hosts=hosts, limit=limit)
        return msgspec.structs.replace(found, reason=why) if why else found

    def rehearse(self, request: Request, *, limit: int) -> Rehearsal:
        """What would be decided now, as :func:`rehearse` says. Raises NoValidHost: not ready."""
        if why := self.freshness and self.freshness.unready():
            raise NoValidHost(why)
        try:
            request = self._answered(request)
        except BackendError as error:
            raise NoValidHost(str(error)) from error
        return rehearse(self.deps, self.choice, request, limit=limit)

    def _answered(self, request: Request) -> Request:
        """The request with Placement's answer where it has to be asked. Raises BackendError."""
        if self.asking is None:
            return request
        self.choice.refresh_globals()
        until_s = self.deps.clock.monotonic_s() + _EXPLAINED_IN_S
        return complete(self.asking.ask(request, until_s, explains=True))
