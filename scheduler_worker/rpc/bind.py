"""Operations over RPC: each is a method of namespace ``scheduler_worker``, by its name.

Its arguments are its parameters. Who calls is what the context of the message says, which nobody
has checked: whoever reaches the bus may write one. So rights guard against mistakes here, and
accounts of the broker against strangers.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from scheduler_worker.operations.callers import ROLES, Caller, Grant, Right, Role, included
from scheduler_worker.operations.forms import parsed, plain
from scheduler_worker.operations.operation import Call, Operation
from scheduler_worker.operations.rights import Access
from scheduler_worker.operations.services import UseCases
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.dispatcher import Context, Endpoint
from scheduler_worker.wording import one_line


def _caller(context: Context, role: Role | None, roles: Mapping[str, Role]) -> Caller:
    if context.roles:
        meant = included(context.roles, roles)
        role = ROLES[len(meant) - 1] if meant else None
    where = f"RPC, project {one_line(context.project_id)}" if context.project_id else "RPC"
    grants = () if role is None else (Grant(role),)
    return Caller(one_line(context.user_id or "a client of the bus"), grants, where)


def endpoint(
    operations: Iterable[Operation[Any, Any]],
    services: UseCases,
    access: Access,
    role: Role | None,
    roles: Mapping[str, Role],
) -> Endpoint:
    """The operations that a worker serves; a question to one worker never blocks.

    Its refusal may: it is recorded in the audit, which is in the shared state. So a caller without
    the right takes a slot.

    ``role`` is that of a context without roles, None: it may do nothing. ``roles`` maps Keystone's
    roles, which contexts of OpenStack's services have, to the worker's.
    """
    served = [each for each in operations if each.home != "api"]

    def method(operation: Operation[Any, Any]) -> Callable[..., Any]:
        def serve(context: Context, **arguments: Any) -> Any:
            call = Call(
                operation,
                services,
                _caller(context, role, roles),
                access,
                request_id=context.request_id,
                subject=str(next(iter(arguments.values()), "")),
            )
            parameters = parsed(operation, arguments)  # a refusal is recorded with its subject
            call.allow()
            return plain(operation, operation.serve(call, parameters))

        return serve

    def is_permitted(right: Right | None, context: Context) -> bool:
        return right is None or access.permits(_caller(context, role, roles), right)

    return Endpoint(
        versions.NAMESPACE,
        versions.WORKER,
        {each.name: method(each) for each in served},
        non_blocking={
            each.name: partial(is_permitted, each.right)
            for each in served
            if each.home == "worker" and each.method == "GET"
        },
    )
