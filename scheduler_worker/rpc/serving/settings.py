"""Settings of a server, whatever its bus: names, limits, and backoff."""

from typing import Annotated, NamedTuple

import msgspec

from scheduler_worker.options import Opt


class QueueNames(NamedTuple):
    """The names of a server's exchanges and queues, as oslo.messaging derives them."""

    exchange: str
    topic: str
    server: str

    @property
    def queue(self) -> str:
        """Shared by all servers of the topic."""
        return self.topic

    @property
    def own_queue(self) -> str:
        """For messages to this server."""
        return f"{self.topic}.{self.server}"

    @property
    def fanout_exchange(self) -> str:
        return f"{self.topic}_fanout"

    @property
    def fanout_queue(self) -> str:
        """The same after a restart, so that restarts leave no queue behind."""
        return f"{self.topic}_fanout_{self.server}"

    @property
    def dead_letters(self) -> str:
        return f"{self.topic}_dead_letters"


class DeliveryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a message may be, and how often it is delivered."""

    max_deliveries: Annotated[int, Opt(min=1, max=1000)] = 10
    """Deliveries of a message that is never finished before it goes to the dead-letter queue
    <topic>_dead_letters."""
    max_message_bytes: Annotated[int, Opt(min=4096)] = 32 * 2**20
    """The size of the largest message that is read; larger ones are refused."""

    @property
    def max_bytes_in_flight(self) -> int:
        """While more is in flight, nothing is read from the broker."""
        return 4 * self.max_message_bytes


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server knows of its bus. Times in seconds."""

    kind: str
    retry_s: float = 0.0
    retry_backoff_s: float = 0.0
    longest_retry_s: float = 0.0
    find_caller_s: float = 0.0
    """For how long an answer is retried whose reply queue is missing: the caller may reconnect."""
