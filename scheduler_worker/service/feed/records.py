"""What the workers share of the feed: scope ``@feed``, one record under the key ``n:feed``.

It is the feed's turn, how far each part was read, and whether all hosts are known.
"""

from __future__ import annotations

import msgspec

from scheduler_worker.ports import Guard, Put, Store, Transaction
from scheduler_worker.service.state.replica import Replica

SCOPE = "@feed"
_KEY = "n:feed"


class PartProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a part was read; times are seconds since the epoch."""

    name: str
    nodes_since_s: float | None = None
    """Where the changes of compute nodes are to be read on, by the source's clock; None: read all.
    """
    instances_since_s: float | None = None
    read_to: str | None = None
    """While all is read for the first time: the last host that was stored, of all in their order;
    None: all were, or none is to be yet."""
    synced_at_s: float = 0.0
    """When all of it was known last, by the store's clock; 0: never."""
    hosts: int = 0
    """How many hosts it has."""
    left: int = 0
    """How many of them have to be read before it is known."""
    problem: str = ""
    """Why it cannot be read now."""


class FeedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The feed's turn, and what it has done."""

    worker: str
    """Which worker feeds."""
    at_s: float
    """When it said so last, by the store's clock."""
    is_complete: bool = False
    """Whether all hosts that can be read are known."""
    parts: dict[str, PartProgress] = {}
    """By their ids."""
    problem: str = ""
    """Why the outline of the source cannot be read now."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FeedState).decode


class FeedRecords(Replica):
    """A replica of the record."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.state: FeedState | None = None

    def take(self, key: str, version: int, value: bytes | None) -> None:
        if key == _KEY:
            self.state = None if value is None else _decode(value)

    def write(self, store: Store, state: FeedState) -> bool:
        """Compare-and-set the record; False if another worker wrote it first.

        Called with the lock held. Raises StateUnavailable.
        """
        transaction = Transaction([Put(_KEY, _encode(state))], [Guard(_KEY, self.version(_KEY))])
        written = store.write(SCOPE, [transaction])
        if written.applied[0]:
            self.refresh(store)
        return written.applied[0]
