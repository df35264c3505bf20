"""RPC methods for tuning, in namespace ``scheduler_worker``: what clients of MOM need."""

from __future__ import annotations

from typing import Any

from scheduler_worker.errors import RequestError
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION, page
from scheduler_worker.service.tuning.tuner import Tuner


class TuningEndpoint:
    """Tuning policies and statistics."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner

    def endpoint(self) -> Endpoint:
        """The methods of namespace ``scheduler_worker`` that are about tuning."""
        return Endpoint(
            NAMESPACE,
            VERSION,
            {
                "set_tuning_policy": self.set_tuning_policy,
                "get_tuning_policies": self.get_tuning_policies,
                "reset_tuning_policies": self.reset_tuning_policies,
                "get_statistics": self.get_statistics,
            },
        )

    def set_tuning_policy(self, context: Context, name: Any, text: Any) -> bool:
        """Put a tuning policy in force; null undoes what was set by this method."""
        if text is not None and not isinstance(text, str):
            raise RequestError("text", f"expected a text, got {type(text).__name__}")
        self._tuner.policies.set(codec.decode_name(name, "name"), text)
        return True

    def get_tuning_policies(self, context: Context) -> dict[str, str]:
        """Return the text of each policy in force, by name."""
        return self._tuner.policies.texts()

    def reset_tuning_policies(self, context: Context) -> bool:
        """Undo everything that was set by ``set_tuning_policy``."""
        self._tuner.policies.reset()
        return True

    def get_statistics(
        self, context: Context, cluster: Any = None, marker: Any = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return a page of hosts and VMs, as tuning rules see them."""
        return self._tuner.statistics(*page(cluster, marker, limit))
