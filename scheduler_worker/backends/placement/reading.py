"""Reads Placement's providers: the list, sums of all at once, and single ones in parallel."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from scheduler_worker.backends.placement.session import PlacementSession
from scheduler_worker.conversion import convert
from scheduler_worker.errors import PlacementRefused, PlacementUnavailable
from scheduler_worker.model.providers import (
    MAX_RATIO,
    Inventory,
    ProviderEntry,
    ProviderFacts,
    ProviderSummary,
    ProviderTraits,
    Use,
)
from scheduler_worker.model.sizes import MAX_SIZE
from scheduler_worker.wording import cut

LOG = logging.getLogger(__name__)

MAX_DETAIL = 300
Form = TypeVar("Form")
Read = TypeVar("Read")


class _Unreadable(PlacementRefused):
    """An answer that has not the form that it should have."""


class _List(msgspec.Struct):
    resource_providers: list[ProviderEntry]


class _Candidates(msgspec.Struct):
    provider_summaries: dict[str, ProviderSummary]


class _Inventories(msgspec.Struct):
    resource_provider_generation: int
    inventories: dict[str, dict[str, Any]]


class _Traits(msgspec.Struct):
    traits: tuple[str, ...]


class _Aggregates(msgspec.Struct):
    aggregates: tuple[str, ...]


class _Usages(msgspec.Struct):
    usages: dict[str, int]


class PlacementReader:
    """Reads providers with at most ``concurrency`` requests at a time."""

    def __init__(self, session: PlacementSession, *, concurrency: int = 4) -> None:
        self.session = session
        """Asks what is not about providers, such as versions."""
        self._threads = ThreadPoolExecutor(concurrency, "placement-read")
        self._is_closed = False
        self._unreadable: dict[str, str] = {}
        """Providers that cannot be read, and why."""

    def listed(self) -> Sequence[ProviderEntry]:
        return self._list("")

    def trees(self, uuids: Sequence[str]) -> Mapping[str, Sequence[ProviderEntry]]:
        return self._each(uuids, lambda uuid: self._list(f"?in_tree={uuid}"))

    def having(self, trait: str) -> Sequence[ProviderEntry]:
        return self._list(f"?required={trait}")

    def sums(self, query: str) -> Mapping[str, ProviderSummary]:
        return self._got(f"/allocation_candidates?{query}", _Candidates).provider_summaries

    def facts(self, uuids: Sequence[str]) -> Mapping[str, ProviderFacts]:
        return self._each(uuids, self._facts)

    def traits(
        self, uuids: Sequence[str], *, aggregates: bool = True
    ) -> Mapping[str, ProviderTraits]:
        return self._each(uuids, partial(self._traits, aggregates=aggregates))

    def uses(self, uuids: Sequence[str]) -> Mapping[str, Use]:
        return self._each(
            uuids, lambda uuid: self._find(f"/resource_providers/{uuid}/allocations", Use)
        )

    def usages(self, uuids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        return self._each(uuids, self._usages)

    def close(self) -> None:
        """End the threads; a request that is under way is finished by its timeout."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.session.close()

    def _each(self, uuids: Sequence[str], read: Callable[[str], Read | None]) -> dict[str, Read]:
        try:
            answers = list(self._threads.map(read, uuids))
        except (CancelledError, RuntimeError) as error:
            if not self._is_closed:
                raise
            raise PlacementUnavailable("the worker stops") from error
        pairs = zip(uuids, answers, strict=True)
        return {uuid: answer for uuid, answer in pairs if answer is not None}

    def _list(self, query: str) -> Sequence[ProviderEntry]:
        return self._got(f"/resource_providers{query}", _List).resource_providers

    def _facts(self, uuid: str) -> ProviderFacts | None:
        """What a provider has: nothing, as long as that cannot be read; the others go on."""
        try:
            facts = self._read_facts(uuid)
        except _Unreadable as error:
            if self._unreadable.get(uuid) != str(error):
                LOG.warning("Nothing is taken of resource provider %s: %s", uuid, error)
            self._unreadable[uuid] = str(error)
            return ProviderFacts(generation=None, inventories={})
        if self._unreadable.pop(uuid, None) is not None:
            LOG.info("Resource provider %s can be read again", uuid)
        return facts

    def _read_facts(self, uuid: str) -> ProviderFacts | None:
        # The inventories come first: a change after them raises the generation that they carry.
        inventories = self._find(f"/resource_providers/{uuid}/inventories", _Inventories)
        traits = self._read_traits(uuid)
        if inventories is None or traits is None:
            return None
        return ProviderFacts(
            generation=inventories.resource_provider_generation,
            inventories={
                name: _inventory(inventory) for name, inventory in inventories.inventories.items()
            },
            traits=traits.traits,
            aggregates=traits.aggregates,
        )

    def _traits(self, uuid: str, *, aggregates: bool) -> ProviderTraits | None:
        """As :meth:`_facts` has them, and has told of."""
        try:
            return self._read_traits(uuid, aggregates=aggregates)
        except _Unreadable:
            return ProviderTraits()

    def _read_traits(self, uuid: str, *, aggregates: bool = True) -> ProviderTraits | None:
        path = f"/resource_providers/{uuid}"
        traits = self._find(f"{path}/traits", _Traits)
        member_of = self._find(f"{path}/aggregates", _Aggregates) if aggregates else _Aggregates(())
        if traits is None or member_of is None:
            return None
        uuids = tuple(sorted(member_of.aggregates))
        return ProviderTraits(traits=tuple(sorted(traits.traits)), aggregates=uuids)

    def _usages(self, uuid: str) -> Mapping[str, int] | None:
        answer = self._find(f"/resource_providers/{uuid}/usages", _Usages)
        return None if answer is None else answer.usages

    def _got(self, path: str, form: type[Form]) -> Form:
        answer = self._find(path, form)
        if answer is None:
            raise PlacementRefused(f"it does not know {path}")
        return answer

    def _find(self, path: str, form: type[Form]) -> Form | None:
        """The answer to a GET; None: not found."""
        answer = self.session.request("GET", path)
        if answer.status == 404:
            return None
        if not answer.is_ok:
            _, detail = answer.error
            raise PlacementRefused(f"GET {path}: {answer.status} {cut(detail, MAX_DETAIL)}")
        try:
            return convert(answer.body, form)
        except msgspec.ValidationError as error:
            raise _Unreadable(f"its answer to GET {path} is no such: {error}") from None


def _inventory(sent: Mapping[str, Any]) -> Inventory:
    """An inventory; figures beyond our bounds become the largest that we have."""
    bounded = {
        name: min(sent[name], MAX_RATIO if name == "allocation_ratio" else MAX_SIZE)
        for name in Inventory.__struct_fields__
        if name in sent
    }
    try:
        return convert(bounded, Inventory)
    except msgspec.ValidationError as error:
        raise _Unreadable(f"its inventory {dict(sent)} is no such: {error}") from None
