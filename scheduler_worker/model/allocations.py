"""Allocations: what consumers (instances, migrations) hold in Placement, under its own rules.

Each consumer's record has a generation. It is written as a whole, by whoever names its present
generation; None says that there is no record. Every write raises it by one, and a record that
holds nothing any more is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

Amounts = Mapping[str, int]
"""Resource class -> amount."""


class Owner(NamedTuple):
    """Whose quota an allocation counts for."""

    project_id: str
    user_id: str


class Consumer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a consumer holds, or is to hold."""

    uuid: str
    owner: Owner
    held: Mapping[str, Amounts] = {}
    """Provider uuid -> what is held of it."""
    mappings: Mapping[str, list[str]] = {}
    generation: int | None = None
    """Of the record that is there, or is to be replaced."""

    def holds(self, wanted: Mapping[str, Amounts]) -> bool:
        """Whether it holds exactly this of these providers, and perhaps something of others."""
        return all(self.held.get(provider) == amounts for provider, amounts in wanted.items())

    def with_more(self, more: Mapping[str, Amounts]) -> Consumer:
        """The same with this in addition; Placement takes no mappings for it."""
        held = {provider: dict(amounts) for provider, amounts in self.held.items()}
        for provider, amounts in more.items():
            total = held.setdefault(provider, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
        return msgspec.structs.replace(self, held=held, mappings={})

    def without(self, less: Mapping[str, Amounts]) -> Consumer:
        """The same without this, as :meth:`with_more` had added it."""
        held: dict[str, dict[str, int]] = {}
        for provider, amounts in self.held.items():
            taken = less.get(provider, {})
            left = {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
            if left := {name: amount for name, amount in left.items() if amount > 0}:
                held[provider] = left
        return msgspec.structs.replace(self, held=held, mappings={})

    def written(self) -> Consumer:
        """The record once it was written."""
        return msgspec.structs.replace(self, generation=(self.generation or 0) + 1)


def consumer_of(uuid: str, allocation: Any, owner: Owner) -> Consumer:
    """A new consumer that holds what a selection's allocation describes."""
    held = {provider: each["resources"] for provider, each in allocation.allocations.items()}
    return Consumer(uuid=uuid, owner=owner, held=held, mappings=allocation.mappings)
