"""What happened to a request for destinations on its way; its outcome is told when it ends."""

from __future__ import annotations

from scheduler_worker.errors import NoValidHost, SchedulerWorkerError
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.ports import Outcome
from scheduler_worker.scheduling.pipeline import Request


class Trail:
    """Facts that are gathered while a request is decided. Times are seconds."""

    def __init__(self, request: Request, arrived_s: float) -> None:
        self.request = request
        self.arrived_s = arrived_s
        self.cluster: str | None = None
        self.attempts = 0
        self.lock_wait_s = 0.0
        self.hold_s = 0.0
        self.token: int | None = None
        self.waited_for_pending_s = 0.0
        self.refused_at: dict[str, int] = {}
        """For each cluster where no host passed, the count of its news then."""
        self.roams = False
        """Whether it may go to any of several clusters."""
        self.claimed: dict[str, int] = {}
        """For each instance the version at which this request said last where it is decided."""
        self.detours = 0
        """How often it had to look once more where its instances are."""
        self._joined_s = arrived_s

    def line_up(self, scope: str | None, now_s: float) -> None:
        """It begins to wait for the lock of a cluster; None: for those of several."""
        self.cluster = scope
        self._joined_s = now_s

    def turn_away(self) -> None:
        """Its instances are elsewhere: what it said of them is worth nothing any more."""
        self.claimed.clear()
        self.detours += 1

    def wait_on(self, now_s: float) -> float:
        """It has waited in the line until now: so long since it joined, or was decided last."""
        waited_s = now_s - self._joined_s
        self._joined_s = now_s
        self.lock_wait_s += waited_s
        return waited_s

    def decide(self, token: int, now_s: float) -> None:
        """Its turn has come."""
        self.wait_on(now_s)
        self.attempts += 1
        self.token = token

    def placed(self, decision: Decision, now_s: float) -> Outcome:
        """The outcome of a request that has its hosts."""
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
        result = type(error).__name__ if is_ours else "InternalError"
        return self._outcome(result, diagnosis or Diagnosis(), now_s)

    def _outcome(
        self,
        result: str,
        diagnosis: Diagnosis,
        now_s: float,
        *,
        hosts: tuple[str, ...] = (),
        repeated: int = 0,
    ) -> Outcome:
        steps = diagnosis.filters
        return Outcome(
            request_id=self.request.request_id,
            result=result,
            cluster=self.cluster,
            instances=len(self.request.instance_uuids),
            hosts=hosts,
            repeated=repeated,
            candidates=diagnosis.hosts,
            passed=steps[-1].hosts_out if steps else diagnosis.hosts,
            rejections=tuple((step.name, step.hosts_in - step.hosts_out) for step in steps),
            attempts=self.attempts,
            lock_wait_s=self.lock_wait_s,
            hold_s=self.hold_s,
            waited_for_pending_s=self.waited_for_pending_s,
            token=self.token,
            duration_s=now_s - self.arrived_s,
        )
