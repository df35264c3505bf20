"""Ports to Nova's Placement service: what the use cases read and write, and what it refuses."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from scheduler_worker.model.providers import (
    CandidatesAnswer,
    Consumer,
    ProviderEntry,
    ProviderFacts,
    ProviderSummary,
    ProviderTraits,
    ResourceProvider,
    SharingProvider,
    Use,
)


class Why(StrEnum):
    """Why Placement wrote nothing."""

    FULL = "full"
    """A provider lacks the capacity or the inventory, or cannot give such an amount."""
    GONE = "gone"
    """A provider does not exist. All new consumers of the request now have generation 0."""
    CHANGED = "changed"
    """A consumer has another generation."""
    BUSY = "busy"
    """Other writers were always faster; the same may be accepted now."""


class ClaimRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Placement's answer to a write of several consumers, of which it wrote none."""

    why: Why
    message: str
    providers: tuple[str, ...] = ()
    """The providers that the message names."""


class Allocations(Protocol):
    """The consumers of Placement."""

    def write(self, consumers: Sequence[Consumer], *, timeout_s: float) -> ClaimRefusal | None:
        """Replace the records of all these consumers; None: it was done. All of it, or nothing.

        Raises:
            PlacementUnavailable: whether it was written is unknown.
            PlacementRefused: it will not be written, however often it is tried.
        """

    def read(self, uuid: str, *, timeout_s: float) -> Consumer | None:
        """What a consumer holds; None: nothing. Raises as :meth:`write` does."""


class Providers(Protocol):
    """Placement's providers. All methods raise PlacementUnavailable and PlacementRefused."""

    def listed(self) -> Sequence[ProviderEntry]:
        """All providers."""

    def trees(self, uuids: Sequence[str]) -> Mapping[str, Sequence[ProviderEntry]]:
        """By each of these, the providers in its tree; none where it is gone."""

    def having(self, trait: str) -> Sequence[ProviderEntry]:
        """Those with a trait."""

    def sums(self, query: str) -> Mapping[str, ProviderSummary]:
        """Those in the trees that a query of allocation candidates finds."""

    def facts(self, uuids: Sequence[str]) -> Mapping[str, ProviderFacts]:
        """The inventories of these; without providers that are gone."""

    def traits(
        self, uuids: Sequence[str], *, aggregates: bool = True
    ) -> Mapping[str, ProviderTraits]:
        """The traits of these, and the aggregates if asked for; without providers that are gone."""

    def uses(self, uuids: Sequence[str]) -> Mapping[str, Use]:
        """Who takes what of these; without providers that are gone."""

    def usages(self, uuids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """How much is taken of these in all, by resource class; without providers that are gone."""

    def close(self) -> None:
        """Read nothing any more."""


class CandidateSource(Protocol):
    """Placement's answers about single requests."""

    def candidates(self, query: str, *, timeout_s: float) -> CandidatesAnswer:
        """The answer to a query of allocation candidates.

        Raises:
            PlacementUnavailable: it is away, slow or broken.
            PlacementRefused: it does not accept the account, or the query.
        """


class Sharing(Protocol):
    """Knows which providers share with others."""

    def known(self) -> Sequence[SharingProvider] | None:
        """As they were last read; None: not yet. Does not block."""

    def read(self) -> Sequence[SharingProvider]:
        """As they are now. Raises PlacementUnavailable, PlacementRefused."""


class ProviderTrees(Protocol):
    """Knows the trees of hosts as they are now."""

    def verify(
        self, roots: Collection[str], traits: Collection[str] | None = None
    ) -> Mapping[str, Sequence[ResourceProvider]]:
        """The trees of these hosts, by uuid, with the providers, traits and aggregates of now.

        With ``traits``, only whether the compute nodes have these is of now.
        If a host's record has others, the tree is read and stored; one that is gone is empty.
        Any thread may call it.

        Raises:
            BackendError: PlacementUnavailable, PlacementRefused.
            Conflict, RequestError, StateUnavailable: what was read is not stored.
        """
