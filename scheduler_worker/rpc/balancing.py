"""RPC methods for balancing, in namespace ``scheduler_worker``; see ``docs/rpc.md``."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.balancing import MODES, Mode
from scheduler_worker.model.migration_ledger import STATES, Progress, State
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.balancing.administration import (
    BalancingAdministration,
    BalancingStatus,
)
from scheduler_worker.service.balancing.balancer import Balancer

_MOST_REASON = 1000
"""Characters that are kept of a reason."""


class BalancingEndpoint:
    """Switches balances, shows what they do, takes answers about migrations and power actions."""

    def __init__(self, administration: BalancingAdministration, balancer: Balancer) -> None:
        self._administration = administration
        self._balancer = balancer

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker`` that are about balancing."""
        return Endpoint(
            NAMESPACE,
            VERSION,
            {
                "set_balancing": self.set_balancing,
                "get_balancing": self.get_balancing,
                "report_migration": self.report_migration,
                "report_power": self.report_power,
            },
        )

    def set_balancing(self, context: Context, cluster: Any = None, mode: Any = None) -> bool:
        """Set the mode of a cluster's balance; null withdraws it."""
        self._administration.switch(codec.decode_name(cluster, "cluster"), _mode(mode))
        return True

    def get_balancing(self, context: Context, cluster: Any = None) -> dict[str, Any]:
        """Return mode, last round and migrations of a cluster, or of all."""
        found = self._administration.status(_name(cluster, "cluster"))
        return {name: _plain(each) for name, each in found.items()}

    def report_migration(
        self,
        context: Context,
        cluster: Any = None,
        migration: Any = None,
        state: Any = None,
        destination: Any = None,
        reason: Any = None,
    ) -> bool:
        """Take in how far a migration is; false if it is not under way."""
        progress = Progress(
            state=_state(state),
            destination=_name(destination, "destination"),
            why=_reason(reason),
        )
        return self._balancer.report(
            codec.decode_name(cluster, "cluster"),
            codec.decode_name(migration, "migration"),
            progress,
        )

    def report_power(
        self,
        context: Context,
        cluster: Any = None,
        action: Any = None,
        state: Any = None,
        reason: Any = None,
    ) -> bool:
        """Take in how far a power action is; false if it is not under way."""
        progress = Progress(state=_state(state), why=_reason(reason))
        return self._balancer.report_power(
            codec.decode_name(cluster, "cluster"), codec.decode_name(action, "action"), progress
        )


def _plain(status: BalancingStatus) -> dict[str, Any]:
    """The status without what only the balance itself reads."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    if found["last_round"] is not None:
        found["last_round"].pop("seen_since_s", None)
    return found


def _mode(value: Any) -> Mode | None:
    """A mode, or null. Raises RequestError, which names the modes."""
    if value is not None and value not in MODES:
        raise RequestError("mode", f"expected null or one of {', '.join(MODES)}, got {value!r:.80}")
    mode: Mode | None = value
    return mode


def _state(value: Any) -> State:
    """A state of a migration or power action. Raises RequestError, which names the states."""
    if value not in STATES:
        raise RequestError("state", f"expected one of {', '.join(STATES)}, got {value!r:.80}")
    state: State = value
    return state


def _name(value: Any, path: str) -> str | None:
    return None if value is None else codec.decode_name(value, path)


def _reason(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise RequestError("reason", f"expected a text, got {type(value).__name__}")
    return (value or "")[:_MOST_REASON]
