"""``scheduler-workerctl``: one command for the fleet, and tools for authors of policies.

``cli/bind.py`` makes the commands of operations; the table has commands that are more than a call.
"""

import argparse
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from scheduler_worker.cli import UNUSABLE, bind, book
from scheduler_worker.cli.commands import add_connection, connected
from scheduler_worker.cli.program import REFUSED, CommandProgram
from scheduler_worker.errors import BackendError, ConfigError, SchedulerWorkerError

if TYPE_CHECKING:
    from scheduler_worker.cli.bind import FleetCommand

UNREACHABLE = 3


class Ctl(CommandProgram):
    """The program."""

    NAME = "scheduler-workerctl"
    DESCRIPTION = """\
One command for the fleet of workers, and tools for authors of policies.

  scheduler-workerctl worker list                          who serves, and how busy they are
  scheduler-workerctl host list --state down -f json
  scheduler-workerctl decision show 6f0b2c1e-...           why an instance has no host
  scheduler-workerctl policy edit packing                  in $EDITOR
  scheduler-workerctl help policy edit

The commands of cluster, host, reservation, decision, policy, unit, audit, worker, balance, explain,
capacity and rehearse ask the workers over the bus; they need nothing but a configuration file of
the workers, or the URL of the bus. doctor looks at all that a worker needs, tuning reads files
alone. `scheduler-worker-manage` has the commands of policy, unit and audit where no worker runs,
and those of the archive's tables and of users.
"""
    EPILOG = """\
exit status:
  0  done, and nothing is wrong
  1  refused: the workers say no, there is no such thing, a policy has issues, or a check of
     `doctor` failed
  2  wrong arguments, a configuration or a file that cannot be used
  3  no answer: the bus, or all workers, or the one asked for, or their shared state is away
"""
    COMMANDS: ClassVar = {
        **book.COMMANDS,
        "balance default": "balance:WithdrawMode",
        "balance dry-run": "balance:SwitchToDryRun",
        "balance off": "balance:SwitchOff",
        "balance on": "balance:SwitchOn",
        "balance show": "balance:ShowBalances",
        "capacity": "requests:CountCapacity",
        "decision tail": "fleet:TailDecisions",
        "doctor": "doctor:Doctor",
        "explain": "requests:ExplainPlacement",
        "host remove": "fleet:RemoveHosts",
        "host report": "fleet:ReportHosts",
        "rehearse": "rehearse:RehearseDecisions",
        "tuning check": "tuning:Check",
        "tuning explain": "tuning:ExplainTuning",
        "tuning run": "tuning:Run",
        "tuning schema": "tuning:Schema",
        "worker drain": "fleet:DrainWorkers",
    }
    STATUSES: ClassVar = {
        ConfigError: UNUSABLE,
        BackendError: UNREACHABLE,
        SchedulerWorkerError: REFUSED,
    }

    def __init__(self) -> None:
        super().__init__()
        for name, command in bind.commands().items():
            self.command_manager.add_command(name, command)

    def add_connection(self, parser: argparse.ArgumentParser, command: "FleetCommand") -> None:
        add_connection(parser)

    def connected(
        self,
        command: "FleetCommand",
        arguments: argparse.Namespace,
    ) -> AbstractContextManager[Any]:
        return connected(arguments)


main = Ctl.main
