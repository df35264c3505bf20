"""The scenes: kinds of runs, each with its plans and its checker."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation import actions, auditing, balancing, checker, feeding, plan
from tests.simulation.history import Violation
from tests.simulation.placing import Placing
from tests.simulation.plan import Plan
from tests.simulation.stage import Stage, play


class Scene(NamedTuple):
    """How runs of one kind are planned, played and checked."""

    make: Callable[[str], Plan]
    """From a seed."""
    stage: type[Stage]
    check: Callable[[Any], list[Violation]]
    """Finds the violations of a run."""

    def play(self, plan: Plan) -> Any:
        return play(self.stage, plan)

    def violations(self, plan: Plan) -> list[Violation]:
        return self.check(self.play(plan))


SCENES = {
    "placing": Scene(plan.make, Placing, checker.check),
    "balancing": Scene(balancing.make, balancing.Balancing, actions.check),
    "feeding": Scene(feeding.make, feeding.Feeding, feeding.check),
    "auditing": Scene(auditing.make, auditing.Auditing, auditing.check),
}
