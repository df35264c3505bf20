"""The instances that hosts report, by host name and by instance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from scheduler_worker.model.set_index import SetIndex

Instances = Mapping[str, Mapping[str, Any]]
"""Instance uuid -> what is known of it."""


class ReportedInstances:
    """Which instances are on which host, as the hosts' reports and Nova's casts say."""

    def __init__(self) -> None:
        self._by_host: dict[str, Instances] = {}
        self._hosts_of: SetIndex[str, str] = SetIndex()

    def on(self, host: str) -> Instances:
        """The instances on a host name."""
        return self._by_host.get(host, {})

    def hosts_of(self, instance_uuid: str) -> Collection[str]:
        """The host names that report an instance: two while it migrates."""
        return self._hosts_of.get(instance_uuid, ())

    def replace(self, host: str, instances: Instances | None) -> None:
        """Replace all instances of a host name; None or empty: it has none."""
        for uuid in self._by_host.pop(host, {}):
            self._hosts_of.discard(uuid, host)
        if instances:
            self._by_host[host] = instances
            for uuid in instances:
                self._hosts_of.add(uuid, host)
