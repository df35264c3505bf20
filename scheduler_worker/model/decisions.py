"""Decisions: the selected hosts, and why the others were not selected."""

from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler_worker.model.claims import Claim
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import SchedulerLimits


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """What an instance takes of resource providers, in Placement's terms."""

    allocations: dict[str, Any] = {}
    """Provider uuid -> what is taken of it; empty where no Placement service tracks that."""
    mappings: dict[str, list[str]] = {}
    """Name of each request group -> the providers that serve it."""


class Selection(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A host that was chosen for an instance, or is offered as an alternate."""

    service_host: str
    nodename: str
    compute_node_uuid: str
    cell_uuid: str | None = None
    limits: SchedulerLimits = SchedulerLimits()
    availability_zone: str | None = None
    allocation: Allocation | None = None
    """Present only where the caller needs a provider for each resource group."""


class FilterStep(msgspec.Struct, frozen=True, gc=False):
    """How many hosts went into a filter and how many came out."""

    name: str
    hosts_in: int
    hosts_out: int

    def __str__(self) -> str:
        return f"{self.name} {self.hosts_in:,} -> {self.hosts_out:,}"


class WeightPart(msgspec.Struct, frozen=True, gc=False):
    """What one weigher adds to a host's weight: `product` = `multiplier` * `normalized`.

    Null: not a finite number.
    """

    name: str
    raw: float | None
    normalized: float | None
    multiplier: float | None
    product: float | None


class RankedHost(msgspec.Struct, frozen=True, gc=False):
    """A host that passed all filters; `shares` is what each weigher added to its total.

    Null: not a finite number.
    """

    host: str
    nodename: str
    total: float | None
    shares: dict[str, float | None] = {}
    """By weigher, its factor times the host's score."""

    def __str__(self) -> str:
        shares = [f"{name} {_figure(share)}" for name, share in self.shares.items()]
        parts = f" = {' + '.join(shares)}" if shares else ""
        return f"{self.host}  {_figure(self.total)}{parts}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


class Ranked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The first hosts of a ranking, best first; kept by columns, which takes a fraction of the
    time that a struct for each host takes.
    """

    weighers: tuple[str, ...] = ()
    """Their names; those with factor 0 are left out, and all where only one host passed."""
    names: tuple[str, ...] = ()
    """Of the hosts' services."""
    nodenames: tuple[str, ...] = ()
    totals: tuple[float | None, ...] = ()
    shares: tuple[tuple[float | None, ...], ...] = ()
    """Of each weigher what it gives each host; empty: nothing."""

    @property
    def hosts(self) -> tuple[RankedHost, ...]:
        """The same by hosts."""
        nothing = (0.0,) * len(self.names)
        columns = [share or nothing for share in self.shares]
        by_host = zip(*columns, strict=True) if columns else [()] * len(self.names)
        rows = zip(self.names, self.nodenames, self.totals, by_host, strict=True)
        return tuple(
            RankedHost(host, nodename, total, dict(zip(self.weighers, shares, strict=True)))
            for host, nodename, total, shares in rows
        )


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """A filter that rejects a host, and why."""

    filter: str
    reason: str

    def __str__(self) -> str:
        return f"{self.filter}: {self.reason}"


class HostVerdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The outcome for one host: rejected by a filter with a reason, or weighed."""

    host: str
    nodename: str
    rejected_by: str | None = None
    """The first filter that rejects it."""
    reason: str | None = None
    also_rejected_by: tuple[Rejection, ...] = ()
    """The others that would; only of a host that was asked for by name."""
    weight: float | None = None
    weights: tuple[WeightPart, ...] = ()


class NearMiss(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A rejected host, and what it lacks."""

    host: str
    shortages: dict[str, int] = {}
    """Resource class -> how much of it the host is short of."""
    reasons: tuple[str, ...] = ()
    """Why filters reject it that compare no amounts: clauses about the host."""


class Diagnosis(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a request got the answer it got."""

    hosts: int = 0
    """How many hosts there were before any filter."""
    momentary: bool = False
    """Whether a filter refused hosts for what may be otherwise a moment later: a lack of room, or a
    service that is down."""
    filters: tuple[FilterStep, ...] = ()
    verdicts: tuple[HostVerdict, ...] = ()
    left_out: int = 0
    """How many more verdicts there are than the limit."""
    chosen: str | None = None
    policy: PolicyReference | None = None
    """The policy that it was decided under."""
    sentence: str | None = None
    """All of it in one sentence; None in the answer to a decision, which does not look for it."""
    notes: tuple[str, ...] = ()
    """What is odd about the units' answers, such as that one failed."""


def nearness(diagnosis: Diagnosis) -> tuple[int, int, int]:
    """How near hosts came to what was asked: the nearer, the greater."""
    passed = [step.hosts_out for step in diagnosis.filters if step.hosts_out]
    return len(passed), passed[-1] if passed else 0, diagnosis.hosts


class Explanation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why the hosts of each cluster would be chosen or not."""

    clusters: dict[str, Diagnosis]
    """Cluster -> its diagnosis, in the order in which the clusters would be tried."""
    reason: str | None = None
    """Why the request would be refused; None: some cluster has a host for its first instance."""
    not_found: dict[str, str]
    """Host that was asked for and is in no diagnosis -> why."""


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to one request: per instance the chosen host, then its alternates."""

    selections: tuple[tuple[Selection, ...], ...]
    claims: tuple[Claim, ...] = ()
    diagnosis: Diagnosis
    ranked: Ranked = Ranked()
    """The first hosts for the last instance that was decided, if they are kept."""
    records: Mapping[str, HostRecord] = {}
    """What was known of the hosts in ``selections``, by uuid."""
