"""Columns computed from hosts' reported facts, recomputed only for the rows that changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from scheduler_worker.model.columns import Values
from scheduler_worker.model.hosts import Aggregates, Groups, Hosts, HostState

_MAX_COLUMNS = 512
_GROUPS = "aggregate groups"


class _Column:
    """The values, the function of one of them, and how many changes they include."""

    __slots__ = ("of", "seen", "values")

    def __init__(self, of: Callable[[HostState], Any], values: Values, seen: int) -> None:
        self.of = of
        self.values = values
        self.seen = seen


class _GroupNumbers:
    """Numbers sets of aggregates in the order in which hosts are found to be in them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.found: list[Aggregates] = []

    def __call__(self, host: HostState) -> int:
        aggregates = host.aggregates
        # Looked up by identity, which is cheaper than comparing metadata. Two versions of one
        # aggregate are two groups; ``found`` keeps both alive, so no id is used again.
        number = self._numbers.setdefault(tuple(map(id, aggregates)), len(self.found))
        if number == len(self.found):
            self.found.append(aggregates)
        return number


class DerivedColumns:
    """A cache of columns by key; the least recently used one goes when there are too many."""

    def __init__(self) -> None:
        self._columns: dict[Hashable, _Column] = {}

    def column(
        self,
        hosts: Hosts,
        changed: Sequence[int],
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None,
    ) -> Values:
        """The column of a key; ``changed`` lists the rows of all ``hosts`` that ever changed.

        See :meth:`Hosts.derived`.
        """
        column = self._columns.pop(key, None)
        if column is None or len(column.values) != len(hosts):
            if first is None:
                values = np.fromiter((of(host) for host in hosts.states()), dtype, len(hosts))
            else:
                values = first(hosts)
            column = _Column(of, values, len(changed))
            if len(self._columns) >= _MAX_COLUMNS:
                del self._columns[next(iter(self._columns))]
        elif column.seen < len(changed):
            for host in hosts.states(set(changed[column.seen :])):
                column.values[host.row] = column.of(host)
            column.seen = len(changed)
        self._columns[key] = column
        return column.values

    def groups(self, hosts: Hosts, changed: Sequence[int], most: int) -> Groups:
        """The hosts by their aggregates; renumbered when more than ``most`` groups are known.

        Every change of an aggregate makes a group, and those that no host is in any more stay.
        """
        column = self._columns.get(_GROUPS)
        of = column.of if column else None
        if not isinstance(of, _GroupNumbers) or len(of.found) > most:
            self._columns.pop(_GROUPS, None)
            of = _GroupNumbers()
        return Groups(self.column(hosts, changed, _GROUPS, of, "i4", None), of.found)

    def clear(self) -> None:
        """Forget all columns."""
        self._columns.clear()
