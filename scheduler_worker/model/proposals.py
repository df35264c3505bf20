"""Migrations that a balance proposes, found as they are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scheduler_worker.model.cluster_load import Migration


class Proposals(Sequence[Migration]):
    """The proposals of one plan, the best one first. Each is found once, and only when it is read.

    So a round that reads twenty pays for twenty. The length, and an index from the end, find all.
    """

    def __init__(self, found: Iterable[Migration]) -> None:
        self._left = iter(found)
        self._found: list[Migration] = []

    def __getitem__(self, at: Any) -> Any:
        stop = at.stop if isinstance(at, slice) else at + 1
        self._find(stop if stop is not None and stop > 0 else None)
        return self._found[at]

    def __iter__(self) -> Iterator[Migration]:
        for at in itertools.count():
            self._find(at + 1)
            if at >= len(self._found):
                return
            yield self._found[at]

    def __len__(self) -> int:
        self._find(None)
        return len(self._found)

    def __bool__(self) -> bool:
        self._find(1)
        return bool(self._found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal ones need not be the same

    def _find(self, count: int | None) -> None:
        """Have this many, if there are so many; None: all."""
        more = None if count is None else max(0, count - len(self._found))
        self._found += itertools.islice(self._left, more)
