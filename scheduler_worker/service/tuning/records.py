"""Records of tuning in the shared state, scope ``@tuning``: policies set by RPC, and turns.

``t:`` and a policy's name is its text, ``u:`` and a cluster's name its turn.
"""

from __future__ import annotations

from typing import Self

import msgspec

from scheduler_worker.ports import Guard, Put
from scheduler_worker.service.state.replica import RecordKind
from scheduler_worker.service.state.turns import Turn, TurnRecords

SCOPE = "@tuning"
_POLICY = "t:"


class TuningTurn(Turn, frozen=True):
    """The right to tune a cluster, which is good for one cycle."""

    worker: str = msgspec.field(name="tuner")
    at_s: float
    cycle: int
    """Grows even if the shared state is lost in between, for it is derived from the clock."""

    @classmethod
    def after(cls, before: Self | None, worker: str, now_s: float) -> Self:
        return cls(worker, now_s, max(int(now_s * 1000), before.cycle + 1 if before else 0))


_encode = msgspec.json.Encoder().encode


class TuningRecords(TurnRecords[TuningTurn]):
    """A replica of the records."""

    def __init__(self) -> None:
        self.texts = RecordKind(_POLICY, msgspec.json.Decoder(str).decode)
        """Policies set by RPC, by name."""
        super().__init__(SCOPE, TuningTurn, self.texts)

    def policy_version(self, name: str) -> int:
        """The version of the record of a policy; ``ABSENT`` if none was set."""
        return self.version(_POLICY + name)


def put_policy(name: str, text: str | None) -> Put:
    """Return the write of a policy, or its deletion if the text is None."""
    return Put(_POLICY + name, None if text is None else _encode(text))


def policy_guard(name: str, version: int) -> Guard:
    """Return the condition that the record of a policy still has this version."""
    return Guard(_POLICY + name, version)
