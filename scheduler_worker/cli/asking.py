"""The client of commands, which says what it waits for."""

from collections.abc import Iterator
from typing import Any, TypeVar

from scheduler_worker.cli.progress import counted, doing
from scheduler_worker.client import SchedulerClient
from scheduler_worker.operations.operation import Operation, Page, PageQuery

Item = TypeVar("Item")
AnyQuery = TypeVar("AnyQuery", bound=PageQuery)


class AskingClient(SchedulerClient):
    """A client that says whose answer takes long, and how many items of a list have come."""

    def every(self, operation: Operation[AnyQuery, Page[Item]], query: AnyQuery) -> Iterator[Item]:
        return counted(super().every(operation, query), f"reading the answers to {operation.name}")

    @staticmethod
    def _call(client: Any, method: str, context: dict[str, Any] | None, **arguments: Any) -> Any:
        with doing(f"waiting for the workers' answer to {method}"):
            return SchedulerClient._call(client, method, context, **arguments)
