"""Verifies decisions where their facts come from, so that an answer is true when it is given.

Hosts are decided by records, which are some seconds behind Nova's databases and Placement. The
chosen hosts and their alternates are compared with the source while the claim is written; what
differs is read and stored, and the request is decided again.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import PlacementUnavailable, SchedulerWorkerError, SourceUnavailable
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_records import HostRecord, is_watched
from scheduler_worker.model.providers import ResourceProvider, shape_of
from scheduler_worker.placement import ProviderTrees
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.prefilters.needs import Needs, needs_of
from scheduler_worker.scheduling.prefilters.traits import DISABLED
from scheduler_worker.service.feed.services import ServiceCheck
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.jobs import Question, Singleflight

LOG = logging.getLogger(__name__)

_WORKERS = 8
"""Questions under way at a time: one for each cell, and one for Placement."""


class VerifierPorts(msgspec.Struct, frozen=True):
    """What verifying needs of the outside."""

    services: ServiceCheck
    trees: ProviderTrees | None = None
    """None: Placement is not read."""


Facts = Mapping[str, Any]
"""What was read of hosts, by uuid: the facts of a service, or a tree."""
Differs = Callable[[HostRecord, Any], bool]
"""Whether a host was chosen by something else than these facts."""
Verification = Sequence[tuple[Question[Facts], Differs]]
"""What is asked about one decision."""


def _service_differs(chosen: HostRecord, service: Mapping[str, Any]) -> bool:
    return chosen.service != service


def _tree_differs(chosen: HostRecord, tree: Sequence[ResourceProvider]) -> bool:
    return shape_of(chosen.resource_providers) != shape_of(tree)


class AnswerVerifier:
    """Asks about decisions; safe for threads."""

    def __init__(self, deps: PlacementDependencies, ports: VerifierPorts) -> None:
        self._deps = deps
        self._ports = ports
        self._questions = Singleflight[Facts](deps.clock, name="verify", workers=_WORKERS)

    def begin(self, request: Request, decision: Decision, deadline_s: float) -> Verification:
        """Ask about the hosts of a decision; what waits for the same cell is asked together."""
        by_cell: dict[str, set[str]] = {}
        for uuid, record in decision.records.items():
            if record.cell_uuid is not None and is_watched(record):
                by_cell.setdefault(record.cell_uuid, set()).add(uuid)
        questions: list[tuple[Question[Facts], Differs]] = [
            (Question(cell, partial(self._services, cell), deadline_s, hosts), _service_differs)
            for cell, hosts in by_cell.items()
        ]
        if self._ports.trees is not None:
            parameters = self._deps.pipelines().nova.candidates.parameters
            traits = deciding_traits(needs_of(request.spec, parameters))
            if traits != frozenset():
                ask = partial(self._trees, traits)
                question = Question(traits, ask, deadline_s, decision.records)
                questions.append((question, _tree_differs))
        for question, _ in questions:
            self._questions.submit(question)
        return questions

    async def changed(self, decision: Decision, verification: Verification) -> frozenset[str]:
        """Wait; the uuids of hosts that are not as they were when they were chosen.

        What is known of them is stored by now. Hosts that cannot be asked about count as known.
        """
        changed: set[str] = set()
        result = "known"
        for question, differs in verification:
            try:
                facts = await question
            except SchedulerWorkerError:
                LOG.debug("Chosen hosts were not verified", exc_info=True)
                result = "unread"
                continue
            # Not what is known now: another request may just have stored the change.
            changed.update(
                uuid
                for uuid, record in decision.records.items()
                if uuid in facts and differs(record, facts[uuid])
            )
        self._deps.observer.count(events.VERIFIED, "changed" if changed else result)
        return frozenset(changed)

    def close(self) -> None:
        """Ask nothing any more; what is under way ends by its timeout."""
        self._questions.close()
        self._ports.services.close()

    def _services(self, cell: str, _timeout_s: float, hosts: Collection[str]) -> Facts:
        return self._ports.services.verify(cell, hosts)

    def _trees(
        self, traits: frozenset[str] | None, _timeout_s: float, hosts: Collection[str]
    ) -> Facts:
        try:
            return self._ports.trees.verify(hosts, traits) if self._ports.trees else {}
        except PlacementUnavailable as error:
            # Nobody waits for its return: the claim does that where it has to.
            raise SourceUnavailable(str(error)) from error


def deciding_traits(needs: Needs) -> frozenset[str] | None:
    """The traits of compute nodes that decide, which no claim checks; None: whole trees do.

    That a service is disabled is a trait, too; that is checked where the service is.
    """
    if needs.supply:
        return None
    return needs.required.union(needs.forbidden, *needs.threads) - {DISABLED}
