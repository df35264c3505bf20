"""Runs a simulation: in the caller's process, or in one of its own for the REST API.

Hosts and decisions are copies, and the state is a private one in memory: nothing of the workers is
touched, and they do not serve slower.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from multiprocessing.connection import Connection
from typing import TypeVar

from scheduler_worker import factories
from scheduler_worker.backends.clock import StandingClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.conf import Settings
from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.model.decision_history import KeptDecision
from scheduler_worker.model.simulations import SimulationSummary
from scheduler_worker.service.simulation import copies
from scheduler_worker.service.simulation.copies import Snapshot
from scheduler_worker.service.simulation.deciding import (
    FOR_EVER_S,
    Tried,
    alterations,
    decided,
    planned,
    summarized,
)
from scheduler_worker.service.state.replica import Fleet

Item = TypeVar("Item")

MAX_CHANGES = 500
"""Changes of each kind that a summary for the REST API lists."""
_PROGRESS_S = 0.5
_NICENESS = 10


def rehearse(
    settings: Settings,
    snapshot: Snapshot,
    decisions: Iterable[KeptDecision],
    tried: Tried,
    say: Callable[[int, int], None],
    *,
    most: int | None = None,
    end: Callable[[], str | None] = lambda: None,
) -> SimulationSummary:
    """Decide again, with the options of ``settings``, and sum up.

    ``say`` hears how many decisions have been made, of how many. ``most`` bounds the changes of
    each kind. ``end`` is asked after each decision: a text says why the rest is left out.

    Raises:
        RequestError: names a host or cluster that is not there, or what is wrong in a report.
        ConfigError, ClusterPolicyError: the options, or the policy, cannot be used.
    """
    sandboxes = factories.build_sandboxes(settings)
    with nullcontext() if sandboxes is None else closing(sandboxes):
        pipelines = factories.compile_pipelines(settings.options, sandboxes=sandboxes)
        if tried.policy is not None:
            pipelines.compile(tried.policy)
        plan = planned(snapshot, decisions, pipelines)
        clock = StandingClock(snapshot.now_s)
        state = MemoryState(clock, hold_timeout_s=FOR_EVER_S)
        plan.snapshot.having(alterations(plan.snapshot, tried)).write_to(state)
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        fleet.refresh_globals()
        if tried.added:
            factories.build_inventory(settings, fleet).update_hosts(tried.added)
        total = len(plan.decisions)
        say(0, total)
        made = decided(plan, fleet, state, clock, pipelines)
        changed = []
        left_out = dict(plan.left_out)
        for decision in watched(made, lambda done: say(done, total)):
            changed.append(decision)
            if len(changed) < total and (why := end()) is not None:
                left_out[why] = total - len(changed)
                break
        after = copies.snapshot_of(fleet)
    return summarized(changed, left_out, snapshot, after, most=most)


def watched(items: Iterable[Item], say: Callable[[int], None]) -> Iterator[Item]:
    """The items; ``say`` hears twice a second how many there were."""
    next_s = time.monotonic() + _PROGRESS_S
    for number, item in enumerate(items, 1):
        if time.monotonic() >= next_s:
            say(number)
            next_s = time.monotonic() + _PROGRESS_S
        yield item


def serve(parent: Connection, settings: Settings, tried: Tried) -> None:
    """Simulate as a process: lines of copies come from the parent, the last one empty.

    It is sent pairs of how many decisions were made and of how many; then the summary, or a text
    that says why there is none.
    """
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    with suppress(EOFError, BrokenPipeError):  # the parent has gone
        try:
            copied = copies.parsed(iter(parent.recv_bytes, b""))
            summary = rehearse(
                settings, *copied, tried, lambda *far: parent.send(far), most=MAX_CHANGES
            )
            parent.send(summary)
        except SchedulerWorkerError as error:
            parent.send(str(error))
