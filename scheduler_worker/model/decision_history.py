"""Records of decisions: what was asked, what was decided, and why.

A record has two parts. :class:`DecisionSummary` is what lists show and filter by;
:class:`DecisionDetails` is the rest, the request's specification included, so that it can be
decided again.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Self, get_args

import msgspec
from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.model.decisions import FilterStep, Ranked
from scheduler_worker.model.requests import RequestSpec

Result = Literal["placed", "refused", "failed"]
"""Refused: no host passed. Failed: any other error was answered."""
RESULTS: tuple[str, ...] = get_args(Result)


class Position(NamedTuple):
    """The position of a record in its scope."""

    ms: int
    """When it was written, in milliseconds since the epoch, by the store's clock."""
    number: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"


class DecisionId(NamedTuple):
    """Which record of all; the later one of two is the larger."""

    position: Position
    scope: str

    def __str__(self) -> str:
        return f"{self.position}@{self.scope}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id that has this text. Raises ValueError."""
        position, at, scope = text.partition("@")
        ms, _, number = position.partition("-")
        if not (at and scope and ms.isdecimal() and number.isdecimal()) or len(position) > 40:
            raise ValueError(
                f"{text!r:.80} is no id of a decision, such as 1764000000000-0@default"
            )
        return cls(Position(int(ms), int(number)), scope)


class Margin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How a host came to be chosen."""

    candidates: int
    """Hosts before any filter."""
    passed: int
    """Hosts that passed all filters."""
    shares: tuple[tuple[str, float | None, float | None], ...] = ()
    """The weighers that put it before the next host: name, what it gives either. JSON stores what
    is not finite as None: infinite for the host, minus infinite for the next one."""
    best: str | None = None
    """The host of the highest weight, if it is another."""


class DecisionFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is said of a decision everywhere."""

    worker: str
    result: Result
    reason: str = ""
    """One sentence. Of most that are placed it is stored as `lead`, which takes a fraction of the
    time, and made when it is read."""
    request_id: str = ""
    global_request_id: str | None = None
    project_id: str | None = None
    cluster: str | None = None
    """That of the hosts, or the first one that refused it. Names joined by `+` for one decided
    over several. Null: it did not get that far."""
    flavor: str | None = None
    availability_zone: str | None = None
    policy: str | None = None
    """Name and version, as `name@version`."""
    error: str | None = None
    """The class of the error that was answered."""
    duration_s: float = 0.0


class DecisionSummary(DecisionFacts, frozen=True, gc=False, array_like=True, kw_only=True):
    """What lists show. Stored as an array: fields are only ever added, at the end of this class."""

    decided_at_s: float
    """By the clock of the worker."""
    instances: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """The chosen hosts, one for each instance."""
    lead: Margin | None = None
    """Of the last instance."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names that :attr:`cluster` may stand for."""
        name = self.cluster
        return () if name is None else (name, *name.split("+"))


class ComputeNode(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A compute node."""

    host: str
    nodename: str


class Waits(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a request spent its time on, in seconds."""

    lock_s: float = 0.0
    """In the cluster's queue, and for its lock."""
    hold_s: float = 0.0
    """From the grant of the lock to the end of the commit that reserved the hosts."""
    look_s: float = 0.0
    """For another look at the hosts."""
    pending_s: float = 0.0
    """For pending resources."""
    claim_s: float = 0.0
    """For Placement."""


class DecisionDetails(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The rest. Filters and ranking are of the last instance."""

    spec: RequestSpec
    """As it was asked; without what secrets it has, and what workers add."""
    num_alternates: int = 0
    priority: int = 0
    candidates: int = 0
    """Hosts before any filter."""
    rejections: tuple[tuple[str, int], ...] = ()
    """How many hosts each filter rejected, in order."""
    ranked: Ranked = Ranked()
    selections: tuple[tuple[ComputeNode, ...], ...] = ()
    """For each instance the chosen host, then its alternates."""
    repeated: int = 0
    """Instances that had a reservation already, from an earlier delivery of the request."""
    attempts: int = 0
    token: int | None = None
    waits: Waits = Waits()

    @property
    def filters(self) -> Iterator[FilterStep]:
        """How many hosts went into each filter and came out."""
        hosts_in = self.candidates
        for name, rejected in self.rejections:
            yield FilterStep(name, hosts_in, hosts_in - rejected)
            hosts_in -= rejected

    def encoded(self) -> bytes:
        """The stored form, JSON."""
        return _JSON.encode(self)

    @classmethod
    def decoded(cls, stored: bytes) -> "DecisionDetails":
        """Raises ValueError for what :meth:`encoded` did not make."""
        return _read_details(stored)


class KeptDecision(NamedTuple):
    """A record as it is read."""

    id: DecisionId
    outline: DecisionSummary
    details: DecisionDetails | None = None
    """None: only the outline was asked for, or the details are gone already."""


_JSON = msgspec.json.Encoder()
_read_details = json_reader(DecisionDetails)


def to_keep(spec: RequestSpec) -> RequestSpec:
    """The specification without what workers add to it."""
    if spec.allocation_candidates is None and not spec.closing_hosts:
        return spec
    return structs.replace(spec, allocation_candidates=None, closing_hosts=())
