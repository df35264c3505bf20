"""The commands of ``scheduler-workerctl`` that ask the workers over the bus, one module a noun."""

from __future__ import annotations

from cliff.command import Command

from scheduler_worker.cli.fleet import clusters, decisions, hosts, policies, reservations, workers

COMMANDS: dict[str, type[Command]] = {
    **clusters.COMMANDS,
    **hosts.COMMANDS,
    **reservations.COMMANDS,
    **decisions.COMMANDS,
    **policies.COMMANDS,
    **workers.COMMANDS,
}
"""By name, as in ``cluster list``."""
