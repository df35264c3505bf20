"""Requests that wait, without a slot, until the shared state serves them again."""

from functools import partial

from scheduler_worker.errors import StateAway, StateLost
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.jobs import (
    FOR_THE_ANSWER,
    Pauses,
    Question,
    Singleflight,
    deadline_of,
)
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.waits import SlotYielding

_MOST = 256
"""Requests that wait without their slots; further ones keep theirs, and no more are taken."""


class StatePauses:
    """Pauses between attempts of requests that the state fails; safe for threads.

    Each attempt shows by itself whether the state serves: a server that answers a ping may refuse
    what is written, as a replica does that takes over.
    """

    def __init__(self, deps: PlacementDependencies) -> None:
        self._clock = deps.clock
        self._timeout_s = deps.limits.acquire_timeout_s
        self._slots = SlotYielding(_MOST)
        self._pauses = Singleflight[None](deps.clock, name="state-pauses", workers=1)
        self.close = partial(self._pauses.close, 0.0)
        """End all pauses, present and future, with WorkerStops."""

    async def pause(self, attempt: PlacementAttempt, away: StateAway, pauses: Pauses) -> None:
        """Wait a while; ``pauses`` belong to one request, and grow.

        Raises ``away`` again once its caller's time is nearly over, or where another worker may
        reach the state: there the message goes. Raises WorkerStops.
        """
        now_s = self._clock.monotonic_s()
        deadline_s = deadline_of(
            attempt.arrived_s, attempt.caller_deadline_s, self._timeout_s, kept=FOR_THE_ANSWER
        )
        if isinstance(away, StateLost) or now_s >= deadline_s:
            raise away
        pauses.begin(now_s, deadline_s)
        end = Question(id(attempt), lambda *_: None, deadline_s)
        end.pauses, end.trouble = pauses, away
        self._pauses.submit(end)
        try:
            await self._slots.wait(end, attempt.yield_slot)
        finally:
            attempt.spent("state", now_s, self._clock.monotonic_s())
