"""Records of the decisions of a small world."""

from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.model.decision_history import KeptDecision
from scheduler_worker.observer import Observer
from scheduler_worker.ports import GLOBAL
from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions
from scheduler_worker.service.decisions.recorder import Recorder
from tests.support.services import World


class Records:
    """What a worker keeps of its decisions, in a log that the test may replace."""

    def __init__(
        self,
        world: World,
        *,
        log: MemoryDecisionLog | None = None,
        max_waiting: int = 100,
        observer: Observer | None = None,
    ) -> None:
        self.log = log or MemoryDecisionLog(clock=world.clock)
        self.recorder = Recorder(
            self.log,
            world.clock,
            worker="w1",
            clusters=lambda: world.fleet.globals.names,
            pipeline_of=lambda cluster: world.pipelines.of_cluster(world.fleet, cluster),
            max_waiting=max_waiting,
            observer=observer or Observer(),
        )
        world.scheduler._keep = self.recorder.keep
        self.kept = KeptDecisions(self.log, lambda: [GLOBAL, *world.fleet.globals.names])

    def newest(self, **asked: str) -> list[KeptDecision]:
        """Those that were asked for, of all decisions until now."""
        self.recorder.write()
        return self.kept.page(DecisionQuery(**asked)).decisions  # type: ignore[arg-type]
