"""What a unit of the worker's own form is told of hosts in a sandbox, as plain data.

Both ends are here: :func:`facts_of` gathers it in the worker, :class:`SandboxedHosts` shows it to
the class in the sandbox.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from scheduler_worker.conversion import convert
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.columns import COLUMNS, Rows, Values
from scheduler_worker.model.hosts import Hosts, HostState

Facts = Mapping[str, Sequence[Any]]
"""Name of a fact -> its value of each host, in row order."""

_DTYPES = {column.name: column.dtype for column in COLUMNS if column.dtype != "O"}
_OF_ROWS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("uuid", "host", "nodename", "cluster", "cell_uuid", "host_ip"), list),
        **dict.fromkeys(("hypervisor_type", "hypervisor_hostname", "cpu_info", "updated"), list),
        **dict.fromkeys(("instances", "stats", "metrics", "service"), list),
        "traits": list[tuple[str, ...]],
        "supported_instances": list[tuple[tuple[str, str, str], ...]],
        "pci_device_pools": list[tuple[dict[str, Any], ...]],
        "aggregates": list[tuple[Aggregate, ...]],
    }
)
"""The attributes of :class:`HostState` that are plain data; the type of a list of them."""

FACTS = frozenset([*_DTYPES, *_OF_ROWS])
"""What a unit may declare in :attr:`.Unit.host_facts`."""


def facts_of(hosts: Hosts, names: Collection[str]) -> dict[str, list[Any]]:
    """The facts of these names, all among :data:`FACTS`."""
    columns = {name: hosts.column(name).tolist() for name in names if name in _DTYPES}
    of_rows = [name for name in names if name not in _DTYPES]
    states = list(hosts.states()) if of_rows else []
    return {**columns, **{name: [getattr(state, name) for state in states] for name in of_rows}}


class SandboxedHosts(Hosts):
    """Hosts in a sandbox: the declared columns, :meth:`derived`, and rows with declared
    attributes.
    """

    def __init__(self, facts: Facts, number: int, now_s: float) -> None:
        """Of so many hosts. Raises msgspec.ValidationError for a fact of the wrong type."""
        self.now_s = now_s
        self.metadata_keys = frozenset()
        self.metadata_items = frozenset()
        self._number = number
        self._facts = {
            name: convert(values, _OF_ROWS.get(name, list)) for name, values in facts.items()
        }
        self._states: list[Any] = []

    def __len__(self) -> int:
        return self._number

    def column(self, name: str) -> Values:
        if name not in self._facts:
            raise AttributeError(f"{name} of hosts is not among the declared host_facts")
        return np.array(self._facts[name], _DTYPES[name])

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        return np.fromiter(map(of, self.states()), dtype, len(self))

    def state(self, row: int) -> HostState:
        return next(self.states([row]))

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        if not self._states:
            columns = [self._facts[name] for name in self._facts]
            values = zip(*columns, strict=True) if columns else ((),) * self._number
            self._states = [_SandboxedHost(self, self._facts, value) for value in values]
        return iter(self._states if rows is None else [self._states[row] for row in rows])

    def take(self, rows: Rows) -> Hosts:
        kept = {name: [values[row] for row in rows] for name, values in self._facts.items()}
        return SandboxedHosts(kept, len(rows), self.now_s)


class _SandboxedHost:
    """Stands for a :class:`HostState`."""

    def __init__(self, table: SandboxedHosts, names: Iterable[str], values: Iterable[Any]) -> None:
        self.__dict__.update(zip(names, values, strict=True))
        self.limits: dict[str, Any] = {}
        self.now_s = table.now_s

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} of a host is not among the declared host_facts")
