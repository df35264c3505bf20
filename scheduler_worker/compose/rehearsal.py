"""Runs a rehearsal: in the caller's process, or in one of its own for the REST API.

Hosts and decisions are copies, and the state is a private one in memory: nothing of the workers is
touched, and they do not serve slower.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from multiprocessing.connection import Connection
from typing import TypeVar

from msgspec import structs

from scheduler_worker.backends.settings import StateSettings
from scheduler_worker.compose import engines
from scheduler_worker.compose.parts import Parts
from scheduler_worker.conf import Settings
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.model.decision_history import KeptDecision
from scheduler_worker.model.rehearsals import RehearsalSummary
from scheduler_worker.observer import Outcome
from scheduler_worker.service.rehearsal import snapshots
from scheduler_worker.service.rehearsal.replay import (
    FOR_EVER_S,
    RehearsalOverrides,
    alterations,
    replay,
    replay_plan,
    summarized,
)
from scheduler_worker.service.rehearsal.snapshots import Snapshot
from scheduler_worker.service.requests.dependencies import PlacementLimits
from scheduler_worker.service.requests.scheduler import Keep

Item = TypeVar("Item")

MAX_CHANGES = 500
"""Changes of each kind that a summary for the REST API lists."""
_PROGRESS_S = 0.5
_NICENESS = 10


class _RehearsalParts(Parts):
    """Parts on copies: a state in memory, at a moment that lasts; nobody is talked to."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        super().__init__(
            structs.replace(
                settings,
                state=StateSettings(url="memory://", hold_timeout_s=FOR_EVER_S),
                placement=PlacementLimits(
                    hold_timeout_s=FOR_EVER_S,
                    reservation_ttl_s=FOR_EVER_S,
                    wait_timeout_s=0.0,
                    max_reservations=10**9,
                    max_attempts=1,
                ),
                attestation=None,
                claims=None,
                nova_feed=None,
                decisions=None,
            ),
            clock=engines.standing_clock(now_s),
        )
        self.outcomes: list[Outcome] = []
        """How requests ended, the last one last."""

    @cached_property
    def keep(self) -> Keep:
        return lambda _, outcome, __: self.outcomes.append(outcome)


def rehearse(
    settings: Settings,
    snapshot: Snapshot,
    decisions: Iterable[KeptDecision],
    tried: RehearsalOverrides,
    say: Callable[[int, int], None],
    *,
    most: int | None = None,
    end: Callable[[], str | None] = lambda: None,
) -> RehearsalSummary:
    """Decide again, with the options of ``settings``, and sum up.

    ``say`` hears how many decisions have been made, of how many. ``most`` bounds the changes of
    each kind. ``end`` is asked after each decision: a text says why the rest is left out.

    Raises:
        RequestError: names a host or cluster that is not there, or what is wrong in a report.
        ConfigError, ClusterPolicyError: the options, or the policy, cannot be used.
    """
    with closing(_RehearsalParts(settings, snapshot.now_s)) as parts:
        pipelines, fleet = parts.pipelines(), parts.fleet
        if tried.policy is not None:
            pipelines.compile(tried.policy)
        plan = replay_plan(snapshot, decisions, pipelines)
        plan.snapshot.having(alterations(plan.snapshot, tried)).write_to(parts.state)
        fleet.refresh_globals()
        if tried.added:
            parts.inventory.update_hosts(tried.added)
        total = len(plan.decisions)
        say(0, total)
        made = replay(plan, parts.scheduler, parts.outcomes, fleet, pipelines)
        changed = []
        left_out = dict(plan.left_out)
        for decision in with_progress(made, lambda done: say(done, total)):
            changed.append(decision)
            if len(changed) < total and (why := end()) is not None:
                left_out[why] = total - len(changed)
                break
        after = snapshots.snapshot_of(fleet)
    return summarized(changed, left_out, snapshot, after, most=most)


def with_progress(items: Iterable[Item], say: Callable[[int], None]) -> Iterator[Item]:
    """The items; ``say`` hears twice a second how many there were."""
    next_s = time.monotonic() + _PROGRESS_S
    for number, item in enumerate(items, 1):
        if time.monotonic() >= next_s:
            say(number)
            next_s = time.monotonic() + _PROGRESS_S
        yield item


def serve(parent: Connection, settings: Settings, tried: RehearsalOverrides) -> None:
    """Rehearse as a process: lines of copies come from the parent, the last one empty.

    It is sent pairs of how many decisions were made and of how many; then the summary, or a text
    that says why there is none.
    """
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    with suppress(EOFError, BrokenPipeError):  # the parent has gone
        try:
            copied = snapshots.parsed(iter(parent.recv_bytes, b""))
            summary = rehearse(
                settings, *copied, tried, lambda *far: parent.send(far), most=MAX_CHANGES
            )
            parent.send(summary)
        except SchedulerWorkerError as error:
            parent.send(str(error))
