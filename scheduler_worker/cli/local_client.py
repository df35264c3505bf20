"""Serves operations inside a command, on the shared state, which needs no worker then.

Who may read the secrets of the configuration may do all, so no right is asked for.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from scheduler_worker.cli.commands import complain
from scheduler_worker.cli.progress import doing
from scheduler_worker.client import Answer, OperationsClient, Parameters
from scheduler_worker.errors import ConfigError
from scheduler_worker.operations.callers import Caller, Right
from scheduler_worker.operations.forms import answered, parsed, plain
from scheduler_worker.operations.operation import Call, Operation
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.services import UseCases
from scheduler_worker.service.documents.audit import Actor, Audit

if TYPE_CHECKING:
    from scheduler_worker.compose.parts import Parts
    from scheduler_worker.conf import Settings


class LocalClient(OperationsClient):
    """Calls operations of this process, with the checks and the answers of a call over the bus."""

    def __init__(self, services: UseCases, who: Actor) -> None:
        """The audit names ``who``."""
        self._services = services
        self._caller = Caller(who.user, (), who.origin)
        self._access = _AllRights(services.administration.audit)

    def call(self, operation: Operation[Parameters, Answer], parameters: Parameters) -> Answer:
        named = structs.asdict(parameters)
        given = {name: value for name, value in named.items() if value is not None}
        call = Call(operation, self._services, self._caller, self._access)
        with doing(f"working on {operation.name}"):
            answer = operation.serve(call, parsed(operation, msgspec.to_builtins(given)))
        return answered(operation, plain(operation, answer))  # type: ignore[no-any-return]


class _AllRights(Access):
    """Lets everybody do everything."""

    def __init__(self, audit: Audit) -> None:
        super().__init__(Rights(), audit)

    def permits(self, caller: Caller, action: Right) -> bool:
        return True

    def check(
        self, caller: Caller, action: Right, subject: str, clusters: Collection[str] | None = None
    ) -> None:
        """Refuses nothing."""


@contextmanager
def opened(
    settings: "Settings", units: Collection[str] | None, *, is_change: bool
) -> "Iterator[Parts]":
    """The parts of this process, with these units of files; None: all.

    The archive has a change when the block has ended. Raises ConfigError, StateUnavailable,
    ArchiveUnavailable.
    """
    from scheduler_worker.compose.parts import local_parts

    is_alone = settings.state.url.startswith("memory:")
    if is_change and is_alone:
        _check_is_kept(settings)
    with ExitStack() as stack:
        with doing("opening the shared state and the archive"):
            parts = stack.enter_context(local_parts(settings, units))
            if is_change and units != ():
                parts.administration.register_units()
        yield parts
        if is_change and is_alone:
            parts.copies.settle(asks=True)


def _check_is_kept(settings: "Settings") -> None:
    """Say that a state in memory has the change alone. Raises ConfigError without an archive."""
    if not settings.policy_store.connection:
        raise ConfigError(
            "[state] url is memory://, which ends with this command, and [policy_store] connection "
            "names no archive: nothing would keep the change. Name the state of the workers"
        )
    complain(
        "[state] url is memory://: the change is in the archive, and only processes that start "
        "after this have it."
    )
