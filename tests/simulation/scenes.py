"""The scenes: kinds of runs, each with its plans and its checker."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation import actions, auditing, balancing, checker, feeding, plan
from tests.simulation.history import Findings, Violation
from tests.simulation.placing import Placing
from tests.simulation.plan import Plan
from tests.simulation.stage import Stage, play


class Scene(NamedTuple):
    """How runs of one kind are planned, played and checked."""

    make: Callable[[str], Plan]
    """From a seed."""
    stage: type[Stage]
    judge: Callable[[Any, Findings], None]
    """Adds what violates the rules of the scene in a run."""

    def play(self, plan: Plan) -> Any:
        return play(self.stage, plan)

    def check(self, run: Any) -> list[Violation]:
        """The violations of a run."""
        found = Findings()
        self.judge(run, found)
        for who, error in run.machine.broken:
            found.blame(f"a thread of {who} failed: {error!r}")
        return found.violations

    def violations(self, plan: Plan) -> list[Violation]:
        return self.check(self.play(plan))


SCENES = {
    "placing": Scene(plan.make, Placing, checker.judge),
    "balancing": Scene(balancing.make, balancing.Balancing, actions.judge),
    "feeding": Scene(feeding.make, feeding.Feeding, feeding.judge),
    "auditing": Scene(auditing.make, auditing.Auditing, auditing.judge),
}
