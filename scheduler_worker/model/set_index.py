"""An index of many values under each key."""

from collections.abc import Collection, Hashable
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)

_NOTHING: frozenset[Any] = frozenset()


class SetIndex(dict[Key, "Value | set[Value]"]):
    """Key -> the values filed under it, which are no sets. A single one is kept without a set."""

    def of(self, key: Key) -> Collection[Value]:
        """The values under a key."""
        values = self.get(key, _NOTHING)
        return values if isinstance(values, (set, frozenset)) else (values,)

    def add(self, key: Key, value: Value) -> None:
        """File a value under a key; one that is there already stays there once."""
        values = self.setdefault(key, value)
        if isinstance(values, set):
            values.add(value)
        elif values != value:
            self[key] = {values, value}

    def discard(self, key: Key, value: Value) -> None:
        """Remove a value from a key, and the key with its last value; an absent one is ignored."""
        values = self.get(key)
        if isinstance(values, set):
            values.discard(value)
        if not values or values == value:
            self.pop(key, None)
