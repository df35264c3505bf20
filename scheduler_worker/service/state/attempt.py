"""One request on its way to its hosts: where it may go, where it has been, what it took.

What is observed is reported as an :class:`Outcome` when it ends.
"""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, MutableSequence, Sequence
from functools import cached_property
from typing import Any

from scheduler_worker.errors import Conflict, NoValidHost, SchedulerWorkerError, StateUnavailable
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.decision_history import Waits
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.observer import Outcome, Phase, PhaseName
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.waiters import YieldSlot, keep_slot

CLUSTER_HINT = "cluster"
"""The scheduler hint that names a cluster."""


class PlacementAttempt:
    """A request, its deadline, and what becomes of it. Seconds, of the monotonic clock."""

    def __init__(
        self,
        request: Request,
        arrived_s: float,
        caller_deadline_s: float = math.inf,
        yield_slot: YieldSlot = keep_slot,
    ) -> None:
        self.asked = request
        """As the caller sent it."""
        self.request = request
        """As it is decided: with what Placement answered, without hosts that turned out wrong."""
        self.arrived_s = arrived_s
        self.caller_deadline_s = caller_deadline_s
        """When the caller stops waiting for the answer."""
        self.yield_slot = yield_slot
        # What later decisions depend on
        self.any_cluster = False
        """Whether the request may go to any of several clusters."""
        self.moves_seen: Mapping[str, int] = {}
        """Cluster -> its count of host moves when all clusters were last read."""
        self.refused_at: dict[str, int] = {}
        """Cluster where no host passed -> its capacity version at that time."""
        self.is_partly_reserved = False
        """Whether the cluster that refused it last has reservations for some of its instances."""
        self.declared: dict[str, int] = {}
        """Instance uuid -> version of the placement intent that this request wrote last."""
        self.reserved: dict[str, Sequence[Reservation]] = {}
        """Cluster -> what was reserved there, as it was written."""
        self.redirects = 0
        """How often its instances turned out to be decided in another cluster."""
        self.refresh: str | None = None
        """Whether hosts were read again for it: ``done``, or ``late``."""
        self.refreshes_alternates = False
        """Whether that was for alternates, not before a refusal."""
        self.changed: set[str] = set()
        """Hosts that were others when they were chosen than their sources said afterwards."""
        # What is observed
        self.cluster: str | None = None
        self.refusals = self.refusing_hosts = 0
        """How many clusters refused it in the last attempt, and how many hosts they have."""
        self.attempts = 0
        self.hold_s = 0.0
        self.token: int | None = None
        self.phases: list[Phase] = []
        self._queued_s = self._decided_from_s = arrived_s
        if request.waited_s:
            self.spent("wait", arrived_s - request.waited_s, arrived_s)

    def redirect(self, most: int) -> None:
        """Start over: the instances are decided elsewhere, so the declared intents are void.

        Raises Conflict after ``most`` times.
        """
        self.declared.clear()
        self.redirects += 1
        if self.redirects >= most:
            raise Conflict("Other requests for the same instances are being decided; try again.")

    def half_time_s(self, now_s: float) -> float:
        """When half of what its caller has left now will be over."""
        return (now_s + self.caller_deadline_s) / 2

    def queued(self, cluster: str | None, now_s: float) -> None:
        """Record that the wait for a cluster's lock begins; None: the locks of several clusters."""
        self.cluster = cluster
        self._queued_s = now_s

    def dequeued(self, now_s: float) -> float:
        """Record the end of a wait for the lock; returns its seconds."""
        waited_s = now_s - self._queued_s
        self.spent("lock", self._queued_s, now_s)
        self._queued_s = now_s
        return waited_s

    def attempted(self, token: int, now_s: float) -> None:
        """Record that the request is decided now, under this fencing token."""
        self.dequeued(now_s)
        self.attempts += 1
        self.token = token
        self._decided_from_s = now_s

    def committed(self, began_s: float, now_s: float, held_s: float) -> None:
        """Record that what was decided is reserved; ``began_s`` is when its commit began."""
        self.spent("decide", self._decided_from_s, began_s)
        self.spent("commit", began_s, now_s)
        self.hold_s = held_s

    def spent(self, name: PhaseName, began_s: float, ended_s: float) -> None:
        """Record what time was spent on."""
        self.phases.append(Phase(name, began_s, ended_s))

    def placed(self, decision: Decision, now_s: float) -> Outcome:
        """The outcome of a request that got its hosts."""
        # A rebuild keeps its host and claims nothing, which is no repetition.
        is_check = self.request.spec.is_rebuild_check
        return self._outcome(
            "placed",
            decision.diagnosis,
            now_s,
            hosts=tuple(some[0].service_host for some in decision.selections),
            repeated=0 if is_check else len(decision.selections) - len(decision.claims),
        )

    def failed(self, error: Exception, now_s: float) -> Outcome:
        """The outcome of a request that is answered with an error."""
        is_ours = isinstance(error, SchedulerWorkerError)
        diagnosis = error.diagnosis if isinstance(error, NoValidHost) else None
        # The text of any other error may have secrets or names of files in it.
        result = type(error).__name__ if is_ours else "InternalError"
        if isinstance(error, StateUnavailable):
            result = StateUnavailable.__name__  # callers hear of no other kind
        reason = error.reason if isinstance(error, NoValidHost) else str(error)
        return self._outcome(
            result, diagnosis or Diagnosis(), now_s, reason=reason if is_ours else None
        )

    def _outcome(
        self,
        result: str,
        diagnosis: Diagnosis,
        now_s: float,
        *,
        reason: str | None = None,
        hosts: tuple[str, ...] = (),
        repeated: int = 0,
    ) -> Outcome:
        steps = diagnosis.filters
        took_s: defaultdict[str, float] = defaultdict(float)
        for phase in self.phases:
            took_s[phase.name] += phase.ended_s - phase.began_s
        return Outcome(
            request_id=self.asked.request_id,
            global_request_id=self.asked.global_request_id,
            project_id=self.request.spec.project_id,
            result=result,
            reason=reason,
            instance_uuids=self.request.instance_uuids,
            cluster=self.cluster,
            refusals=self.refusals,
            refusing_hosts=self.refusing_hosts,
            policy=str(diagnosis.policy) if diagnosis.policy else None,
            instances=len(self.request.instance_uuids),
            hosts=hosts,
            repeated=repeated,
            candidates=diagnosis.hosts,
            passed=steps[-1].hosts_out if steps else diagnosis.hosts,
            rejections=tuple([(step.name, step.hosts_in - step.hosts_out) for step in steps]),
            attempts=self.attempts,
            waits=Waits(
                lock_s=took_s["lock"],
                hold_s=self.hold_s,
                look_s=took_s["look"],
                pending_s=took_s["pending"],
                claim_s=took_s["claim"],
            ),
            token=self.token,
            duration_s=now_s - self.arrived_s,
            ended_s=now_s,
            phases=tuple(self.phases),
            traceparent=self.request.traceparent,
        )


class SeededRandom:
    """The random source of a request, seeded by its id: a recorded request replays exactly.

    Seeds on first use: most requests need no random numbers, and seeding is slow.
    """

    def __init__(self, request: Request) -> None:
        self._seed = request.request_id

    @cached_property
    def _random(self) -> random.Random:
        return random.Random(self._seed)

    def randrange(self, start: int, /) -> int:
        return self._random.randrange(start)

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        self._random.shuffle(x)
