"""Placement's providers, with every question to them observed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from scheduler_worker import events
from scheduler_worker.errors import BackendError
from scheduler_worker.model.providers import (
    Listed,
    ProviderFacts,
    ProviderSum,
    ProviderTraits,
    Use,
)
from scheduler_worker.observer import Observer
from scheduler_worker.placement import Providers

Found = TypeVar("Found")


class CountedProviders:
    """Implements ``Providers`` by another one."""

    def __init__(self, inner: Providers, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    def listed(self) -> Sequence[Listed]:
        return self._counted("list", self._inner.listed)

    def trees(self, uuids: Sequence[str]) -> Mapping[str, Sequence[Listed]]:
        return self._counted("list", lambda: self._inner.trees(uuids), len(uuids))

    def having(self, trait: str) -> Sequence[Listed]:
        return self._counted("list", lambda: self._inner.having(trait))

    def sums(self, query: str) -> Mapping[str, ProviderSum]:
        return self._counted("sums", lambda: self._inner.sums(query))

    def facts(self, uuids: Sequence[str]) -> Mapping[str, ProviderFacts]:
        return self._counted("facts", lambda: self._inner.facts(uuids), len(uuids))

    def traits(
        self, uuids: Sequence[str], *, aggregates: bool = True
    ) -> Mapping[str, ProviderTraits]:
        return self._counted(
            "traits", lambda: self._inner.traits(uuids, aggregates=aggregates), len(uuids)
        )

    def uses(self, uuids: Sequence[str]) -> Mapping[str, Use]:
        return self._counted("use", lambda: self._inner.uses(uuids), len(uuids))

    def usages(self, uuids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        return self._counted("use", lambda: self._inner.usages(uuids), len(uuids))

    def close(self) -> None:
        self._inner.close()

    def _counted(self, what: str, read: Callable[[], Found], count: int = 1) -> Found:
        try:
            found = read()
        except BackendError:
            self._observer.count(events.PROVIDER_FAILURES, what)
            raise
        self._observer.count(events.PROVIDER_READS, what, by=count)
        return found
