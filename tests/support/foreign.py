"""oslo.messaging's own server, as nova-scheduler and other services of Nova have one."""

from collections.abc import Sequence
from types import SimpleNamespace

from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.transport import Bus

# isort: split
import oslo_messaging


class ForeignServer:
    """Serves some endpoints on a topic; their handlers get oslo.messaging's context."""

    def __init__(self, bus: Bus, topic: str, name: str, endpoints: Sequence[Endpoint]) -> None:
        target = oslo_messaging.Target(exchange=bus._exchange, topic=topic, server=name)
        served = [
            SimpleNamespace(
                target=oslo_messaging.Target(namespace=each.namespace, version=each.version),
                **each.methods,
            )
            for each in endpoints
        ]
        self._server = oslo_messaging.get_rpc_server(bus._transport, target, served)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Finish what was taken."""
        self._server.stop()
        self._server.wait()
