"""Migrations and power actions by whoever listens to a topic: cast to it, answered by RPC."""

from collections.abc import Mapping, Sequence

from scheduler_worker.errors import MigrationRefused, PowerRefused, Undeliverable
from scheduler_worker.model.ledgers import AskedAction, AskedMigration, AskedPower, Progress
from scheduler_worker.ports import Publisher


class AgentTarget:
    """Casts ``migrate`` and ``set_host_power`` to a topic.

    The agent answers with ``report_migration`` and ``report_power``.
    """

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        try:
            self._cast(
                "migrate",
                cluster,
                migration,
                migration=migration.id,
                vm=migration.vm,
                source=migration.source,
                candidates=list(migration.candidates),
            )
        except Undeliverable as error:
            raise MigrationRefused(str(error)) from None

    def progress(self, migrations: Sequence[AskedMigration]) -> Mapping[str, Progress]:
        return {}

    def withdraw(self, migration: AskedMigration) -> None:
        """``begin_by_s`` has told the agent already."""

    def set_power(self, cluster: str, action: AskedPower) -> None:
        try:
            self._cast(
                "set_host_power", cluster, action, action=action.id, host=action.host, to=action.to
            )
        except Undeliverable as error:
            raise PowerRefused(str(error)) from None

    def _cast(self, method: str, cluster: str, asked: AskedAction, **arguments: object) -> None:
        common = {"reason": asked.reason, "policy": asked.policy, "begin_by_s": asked.overdue_at_s}
        everything = {"cluster": cluster, **arguments, **common}
        self._publisher.cast(topic=self._topic, method=method, arguments=everything)
