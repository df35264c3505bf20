"""Gives each of several items a place of its own: a matching in a bipartite graph."""

from __future__ import annotations

from collections.abc import Callable

Owners = dict[int, int]
"""The item at each place in use."""


class Matching:
    """Which items fit which places; asked for as few pairs as possible."""

    def __init__(self, places: int, fits: Callable[[int, int], bool]) -> None:
        """``fits`` is asked for an item and a place."""
        self._places = range(places)
        self._fits = fits

    def grow(self, owners: Owners, item: int) -> bool:
        """Whether one more item got a place, for which others may have moved."""
        return self._placed(owners, item, -1, set())

    def settled(self, owners: Owners, item: int, place: int) -> Owners | None:
        """The owners with the item at this place, where only items after it move; None: no way."""
        other = owners.get(place)
        if other == item:
            return owners
        moved = {at: each for at, each in owners.items() if each != item} | {place: item}
        if other is None or self._placed(moved, other, item, {place}):
            return moved
        return None

    def _placed(self, owners: Owners, item: int, settled: int, tried: set[int]) -> bool:
        """Whether the item now has a place, the first free one if there is one.

        Items up to ``settled`` stay where they are.
        """
        for place in self._places:
            if place not in owners and self._fits(item, place):
                owners[place] = item
                return True
        for place in self._places:
            other = owners.get(place, settled)
            if other > settled and place not in tried and self._fits(item, place):
                tried.add(place)
                if self._placed(owners, other, settled, tried):
                    owners[place] = item
                    return True
        return False
