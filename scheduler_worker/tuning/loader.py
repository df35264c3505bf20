"""Loads tuning policies: texts to a program, or to all their issues."""

from collections.abc import Iterable

from scheduler_worker.tuning.check import Planner
from scheduler_worker.tuning.issues import Issues
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.reader import read
from scheduler_worker.tuning.tuning_policy import Scope
from scheduler_worker.tuning.yaml_subset import Source


def load(sources: Iterable[Source]) -> Program:
    """Return the program of all sources together; rules of the same scope and output are combined.

    The names of the sources must differ. Loading is atomic: one bad policy refuses them all.

    Raises TuningPolicyError: with all issues of all sources.
    """
    issues = Issues()
    policies = [policy for source in sources if (policy := read(source, issues))]
    plans = {
        scope: Planner(issues).plan(chosen)
        for scope in Scope
        if (chosen := [policy for policy in policies if policy.scope is scope])
    }
    issues.raise_if_any()
    return Program(plans)
