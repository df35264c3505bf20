"""Migrations and power actions by whoever listens to a topic: cast to it, answered by RPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_worker.errors import MigrationRefused, PowerRefused, Undeliverable
from scheduler_worker.model.ledgers import AskedMigration, AskedPower, Progress
from scheduler_worker.ports import Publisher

METHOD = "migrate"
POWER_METHOD = "set_host_power"


class AgentTarget:
    """Casts ``migrate`` to a topic. The agent answers with ``report_migration``."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        try:
            self._publisher.cast(
                topic=self._topic,
                method=METHOD,
                arguments={
                    "migration": migration.id,
                    "cluster": cluster,
                    "vm": migration.vm,
                    "source": migration.source,
                    "candidates": list(migration.candidates),
                    "reason": migration.reason,
                    "policy": migration.policy,
                    "begin_by_s": migration.overdue_at_s,
                },
            )
        except Undeliverable as error:
            raise MigrationRefused(str(error)) from None

    def progress(self, migrations: Sequence[AskedMigration]) -> Mapping[str, Progress]:
        return {}

    def withdraw(self, migration: AskedMigration) -> None:
        """``begin_by_s`` has told the agent already."""


class PowerAgent:
    """Casts ``set_host_power`` to the same topic. The agent answers with ``report_power``."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    def set_power(self, cluster: str, action: AskedPower) -> None:
        try:
            self._publisher.cast(
                topic=self._topic,
                method=POWER_METHOD,
                arguments={
                    "action": action.id,
                    "cluster": cluster,
                    "host": action.host,
                    "to": action.to,
                    "reason": action.reason,
                    "policy": action.policy,
                    "begin_by_s": action.overdue_at_s,
                },
            )
        except Undeliverable as error:
            raise PowerRefused(str(error)) from None
