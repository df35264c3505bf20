"""What every RPC server is to the rest of the house, whatever it is made of."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Characteristics(msgspec.Struct, frozen=True):
    """What a server promises."""

    at_least_once: bool
    """A message is acknowledged when its effect is stored and its answer published."""
    back_pressure: bool
    """No more is taken than there are slots; what waits is in the broker, for every server."""


class Server(Protocol):
    """Serves endpoints from ``start`` until ``stop``."""

    @property
    def characteristics(self) -> Characteristics: ...

    def start(self) -> None:
        """Begin to consume; returns when the queues exist. Harmless when repeated.

        Waits for a broker that is away. Raises BusUnavailable where it refuses us, ConfigError
        where its queues are of another kind than configured.
        """

    def stop(self, timeout_s: float) -> bool:
        """Stop consuming and finish what runs; True if all of it was finished in time.

        Legal before ``start``, and harmless when repeated.
        """

    def problem(self) -> str | None:
        """Why nothing is consumed, if nothing is."""

    def tick_age_s(self) -> float:
        """Seconds since whatever moves messages was last seen alive."""

    def describe(self) -> dict[str, Any]:
        """What an operator may want to see; takes no lock that work may hold."""
