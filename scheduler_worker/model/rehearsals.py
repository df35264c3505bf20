"""Rehearsals: what is asked, the progress, and the result. Values only."""

from typing import Literal

import msgspec

Change = Literal["same", "moved", "refused", "placed"]
"""What a decision is in a rehearsal, compared with what it was."""
RehearsalState = Literal["reading", "deciding", "done", "failed", "cancelled"]


class RehearsalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal is about."""

    since_s: float
    until_s: float
    cluster: str | None = None
    project: str | None = None
    policy: str | None = None
    """The name of the policy that is tried; None: those in force."""
    drained: tuple[str, ...] = ()
    """Hosts that take no more instances."""
    added: tuple[str, ...] = ()
    """Further hosts."""


class RehearsalProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Whose rehearsal it is, and how far it is."""

    id: str
    user: str
    state: RehearsalState = "reading"
    read: int = 0
    """Decisions that were read."""
    done: int = 0
    """Decisions that were made again, of `total`."""
    total: int = 0
    problem: str | None = None
    """Why it failed, or who cancelled it."""


class RehearsalRecord(RehearsalProgress, frozen=True, kw_only=True):
    """A rehearsal as it is stored."""

    begun_at_s: float
    """By the store's clock."""
    asked: RehearsalQuery
    renewed_at_s: float = 0.0
    """When it was stored, by the store's clock."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.state in {"reading", "deciding"}


class RecordsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records by their keys, in the form that `docs/state.md` describes."""

    now_s: float
    records: dict[str, str]
    next: str | None


class UseSpread(msgspec.Struct, frozen=True):
    """The used share of an amount over hosts, in percent of their limits."""

    mean: float
    deviation: float
    """The standard deviation: 0 where all hosts are equally full."""


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a cluster's hosts."""

    cluster: str
    hosts: int
    unused: int
    """Hosts on which no memory is used."""
    use: dict[str, UseSpread]
    """Of ``vcpus``, ``memory_mb`` and ``disk_mb``; a resource that no host limits is left out."""


class BeforeAfter(msgspec.Struct, frozen=True):
    """A number of decisions, as they were made, and in the rehearsal."""

    before: int
    after: int


class ChangedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that came out otherwise."""

    id: str
    change: Change
    instances: tuple[str, ...]
    flavor: str | None
    hosts_before: tuple[str, ...]
    """Empty: it was refused."""
    hosts: tuple[str, ...]
    """Empty: it would be refused."""
    reason: str | None
    """Why it would be refused."""


class PackingChange(msgspec.Struct, frozen=True):
    """The use of each cluster's hosts, by name, before and after."""

    before: list[Packing]
    after: list[Packing]


class RehearsalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all decisions together."""

    rehearsed: int
    left_out: dict[str, int]
    """Why decisions were left out -> how many."""
    placed: BeforeAfter
    refused: BeforeAfter
    counts: dict[Change, int]
    """How many decisions came out the same, and how many in each other way."""
    changes: list[ChangedDecision]
    """In the order of the decisions; as many of each kind as were wanted."""
    packing: PackingChange
