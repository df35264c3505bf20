"""Serves operations on the policy store inside a command, which needs no API process then.

Who may read the database's password may read all of it, so no right is asked for.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scheduler_worker.cli.commands import actor
from scheduler_worker.operations.callers import Caller
from scheduler_worker.operations.operation import Answer, Call, Operation, Parameters

if TYPE_CHECKING:
    from scheduler_worker.service.policies.administration import PolicyAdministration


class StoreClient:
    """Calls operations whose home is the store, as a client of a process that has it would."""

    def __init__(self, administration: "PolicyAdministration") -> None:
        # Operations with a command use the administration alone, not what an API process has too.
        self._services: Any = SimpleNamespace(store=SimpleNamespace(administration=administration))

    def call(self, operation: Operation[Parameters, Answer], parameters: Parameters) -> Answer:
        """The operation's typed answer; raises what the operation does."""
        who = actor(None)
        access: Any = None
        caller = Caller(who.user, (), who.origin)
        return operation.serve(Call(operation, self._services, caller, access), parameters)
