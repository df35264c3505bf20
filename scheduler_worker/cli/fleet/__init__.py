"""The commands that ask the workers over the bus, and are more than the call of an operation."""

from __future__ import annotations

from cliff.command import Command

from scheduler_worker.cli.fleet import decisions, hosts, policies, workers

COMMANDS: dict[str, type[Command]] = {
    **hosts.COMMANDS,
    **decisions.COMMANDS,
    **policies.COMMANDS,
    **workers.COMMANDS,
}
"""By name, as in ``host report``."""
