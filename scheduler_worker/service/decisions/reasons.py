"""Why a request ended as it did, in one sentence."""

from __future__ import annotations

from scheduler_worker.observer import Outcome


def reason(outcome: Outcome) -> str:
    """A sentence about the outcome."""
    if outcome.result == "placed":
        return _why_placed(outcome)
    if outcome.reason is None:
        return "An unexpected error, whose details are in the worker's log."
    last = [name for name, rejected in outcome.rejections if rejected]
    if last and not outcome.passed:
        return f"{outcome.reason} {last[-1]} rejected the last of {outcome.candidates} hosts."
    return outcome.reason


def _why_placed(outcome: Outcome) -> str:
    if outcome.repeated and outcome.repeated == outcome.instances:
        return "It had its hosts already, from an earlier delivery of the request."
    passed = f"{outcome.passed} of {outcome.candidates} hosts passed all filters"
    if outcome.instances > 1:
        return f"For the last of {outcome.instances} instances {passed}."
    if outcome.passed == 1:
        return f"Only {outcome.hosts[0]} of {outcome.candidates} hosts passed all filters."
    return f"{passed}; {outcome.hosts[0]} was chosen by their weights."
