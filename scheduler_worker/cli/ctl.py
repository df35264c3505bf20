"""``scheduler-workerctl``: one command for the fleet, and tools for authors of policies.

The commands of ``cli/fleet`` ask the workers; cliff makes tables, JSON, YAML and CSV of what they
return.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from scheduler_worker.cli import UNUSABLE
from scheduler_worker.cli.program import REFUSED, Program
from scheduler_worker.errors import BackendError, ConfigError, SchedulerWorkerError

UNREACHABLE = 3


class Ctl(Program):
    """The program."""

    NAME = "scheduler-workerctl"
    DESCRIPTION = """\
One command for the fleet of workers, and tools for authors of policies.

  scheduler-workerctl worker list                          who serves, and how busy they are
  scheduler-workerctl host list --state down -f json
  scheduler-workerctl decision show 6f0b2c1e-...           why an instance has no host
  scheduler-workerctl policy edit east                     in $EDITOR
  scheduler-workerctl help policy edit

The commands of cluster, host, reservation, decision, policy, worker, balance, explain, capacity and
rehearse ask the workers over the bus; they need nothing but a configuration file of the workers, or
the URL of the bus. doctor looks at all that a worker needs, tuning reads files alone.
`scheduler-worker-manage` is for the SQL store of policies and users.
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
        "cluster list": "fleet.clusters:ListClusters",
        "cluster show": "fleet.clusters:ShowCluster",
        "decision list": "fleet.decisions:ListDecisions",
        "decision show": "fleet.decisions:ShowDecision",
        "decision tail": "fleet.decisions:TailDecisions",
        "doctor": "doctor:Doctor",
        "host list": "fleet.hosts:ListHosts",
        "host remove": "fleet.hosts:RemoveHosts",
        "host report": "fleet.hosts:ReportHosts",
        "host show": "fleet.hosts:ShowHost",
        "policy attach": "fleet.policies:AttachPolicy",
        "policy detach": "fleet.policies:DetachPolicy",
        "policy diff": "fleet.policies:DiffPolicies",
        "policy edit": "fleet.policies:EditPolicy",
        "policy export": "fleet.policies:ExportPolicies",
        "policy import": "fleet.policies:ImportPolicies",
        "policy list": "fleet.policies:ListPolicies",
        "policy show": "fleet.policies:ShowPolicy",
        "rehearse": "rehearse:Rehearse",
        "reservation list": "fleet.reservations:ListReservations",
        "reservation release": "fleet.reservations:ReleaseReservations",
        "reservation show": "fleet.reservations:ShowReservation",
        "tuning check": "tuning:Check",
        "tuning explain": "tuning:Explain",
        "tuning run": "tuning:Run",
        "tuning schema": "tuning:Schema",
        "worker drain": "fleet.workers:DrainWorkers",
        "worker list": "fleet.workers:ListWorkers",
        "worker resume": "fleet.workers:ResumeWorkers",
        "worker show": "fleet.workers:ShowWorker",
    }
    STATUSES: ClassVar = {
        ConfigError: UNUSABLE,
        BackendError: UNREACHABLE,
        SchedulerWorkerError: REFUSED,
    }

    def __init__(self) -> None:
        super().__init__()
        for module, names in _OF_ARGPARSE.items():
            for name in names:
                self.command_manager.commands[name] = _OfArgparse(name, module)  # type: ignore[assignment]


_OF_ARGPARSE = {
    "balance": [f"balance {each}" for each in ("default", "dry-run", "off", "on", "show")],
    "capacity": ["capacity"],
    "explain": ["explain"],
}
"""Modules with commands that are written for argparse."""


class _OfArgparse(NamedTuple):
    name: str
    module: str

    def load(self) -> Any:
        from scheduler_worker.cli.argparse_groups import commands_of

        return commands_of([import_module(f"{__package__}.{self.module}")])[self.name]


main = Ctl.main
