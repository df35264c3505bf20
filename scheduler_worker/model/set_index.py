"""An index from a key to a set of values, without empty sets."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)


class SetIndex(dict[Key, set[Value]]):
    """Key -> the values filed under it."""

    def add(self, key: Key, value: Value) -> None:
        """File a value under a key; one that is there already stays there once."""
        found = self.get(key)
        if found is None:
            self[key] = {value}
        else:
            found.add(value)

    def discard(self, key: Key, value: Value) -> None:
        """Remove a value from a key, and the key with its last value; an absent one is ignored."""
        found = self.get(key)
        if found is not None:
            found.discard(value)
            if not found:
                del self[key]
