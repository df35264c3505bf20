"""Where hosts are: which clusters have records of them, by uuid and by host name."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from scheduler_worker.model.host_table import SetIndex


class HostPlaces:
    """An index over all clusters that this process knows, kept where their records change.

    Safe for threads. It says where to look; the cluster's replica has what is there.
    """

    def __init__(self) -> None:
        self._by_name: SetIndex[str, tuple[str, str]] = SetIndex()
        self._lock = threading.Lock()

    def replace(
        self, cluster: str, key: str, before: Iterable[str | None], after: Iterable[str | None]
    ) -> None:
        """A cluster's record was about hosts of these names or uuids, and is about those now."""
        with self._lock:
            for name in filter(None, before):
                self._by_name.discard(name, (cluster, key))
            for name in filter(None, after):
                self._by_name.add(name, (cluster, key))

    def of(self, names: Iterable[str]) -> set[str]:
        """The clusters that have hosts of these names or uuids, expect them, or see them leave."""
        with self._lock:
            return {cluster for each in names for cluster, _ in self._by_name.get(each, ())}
