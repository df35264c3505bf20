"""The interface of every RPC server, whatever it is built on."""

from __future__ import annotations

from typing import Any, Protocol


class Server(Protocol):
    """Serves endpoints from ``start`` until ``stop``."""

    def start(self) -> None:
        """Begin to consume; returns when the queues exist. Idempotent.

        Waits for a broker that is away. Raises BusUnavailable where it refuses us, ConfigError
        where its queues are of another kind than configured.
        """

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what runs; True if all of it was finished in time.

        Legal before ``start``. Idempotent.
        """

    def take_requests(self, wanted: bool) -> None:
        """Take messages from the topic's queue, which all servers share, or no more of them.

        What was taken is finished. The server's own queue and the fanout are always served.
        Returns at once. Raises RequestError where the server takes none.
        """

    def come_first(self) -> None:
        """From now on take requests before other programs that consume the topic's queue.

        For servers that were made to come last. Returns at once; does nothing where the broker
        cannot tell consumers apart. Idempotent.
        """

    def problem(self) -> str | None:
        """Why nothing is consumed, or nothing gets done; None if all is well."""

    def failure(self) -> str | None:
        """Why the server ended without being stopped; None if it did not."""

    def tick_age_s(self) -> float:
        """Seconds since the last sign of liveness of the thread that moves messages."""

    def describe(self) -> dict[str, Any]:
        """Figures for an operator; takes no lock that work may hold."""
