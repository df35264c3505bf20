"""Whether the three books agree: Placement's usages, its allocations, and Nova's servers.

A server has exactly its flavor allocated on its host, and nothing elsewhere, but for these: one
that waits for its resize or migration to be confirmed holds its old place under the migration's
uuid, one that was evacuated keeps its old place until that host is back, and one that was shelved
or never built has nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from nova_cloud.client import ComputeClient, PlacementClient, Resources, Server

_HELD = {"finished", "reverting", "confirming", "migrating", "post-migrating"}
"""The states of a migration whose source is still allocated under its uuid."""
_PENDING_EVACUATION = {"accepted", "done", "pre-migrating"}
_WITHOUT_HOST = {"SHELVED_OFFLOADED"}


class Books:
    """All three, as they are now. Reading them takes a moment: read while nothing changes."""

    def __init__(self, compute: ComputeClient, placement: PlacementClient) -> None:
        self.servers = {each.id: each for each in compute.servers()}
        providers = placement.providers()
        self.names = {uuid: name for name, uuid in providers.items()}
        self.usages = {name: placement.usages(uuid) for name, uuid in providers.items()}
        self.consumers = {name: placement.consumers(uuid) for name, uuid in providers.items()}
        moves = [(each, move) for each in self.servers for move in compute.migrations(each)]
        self.held = {
            move["uuid"]: move["source_compute"] for _, move in moves if move["status"] in _HELD
        }
        self.evacuated = {
            (server, move["source_compute"])
            for server, move in moves
            if move["migration_type"] == "evacuation" and move["status"] in _PENDING_EVACUATION
        }

    @property
    def is_empty(self) -> bool:
        """Whether nothing is used and nobody has anything."""
        return not any(self.usages.values()) and not any(self.consumers.values())

    def places(self, consumer: str) -> dict[str, Resources]:
        """What a consumer has, by provider."""
        return {name: each[consumer] for name, each in self.consumers.items() if consumer in each}

    def disagreements(self) -> list[str]:
        """A sentence for each; none if the books agree."""
        return [*self._totals(), *self._of_servers(), *self._of_strangers()]

    def _totals(self) -> Iterator[str]:
        for name, usages in self.usages.items():
            total = _sum(self.consumers[name].values())
            if total != usages:
                yield f"{name}: its usages are {usages}, but its allocations add up to {total}"

    def _of_servers(self) -> Iterator[str]:
        for server in self.servers.values():
            has = self.places(server.id)
            should = _place(server)
            for name in has.keys() - should.keys():
                if (server.id, name) not in self.evacuated:
                    yield f"{server.name} is not on {name}, but has {has[name]} there"
            for name, resources in should.items():
                if has.get(name) != resources:
                    yield f"{server.name} uses {resources} of {name}, but has {has.get(name)}"

    def _of_strangers(self) -> Iterator[str]:
        for name, consumers in self.consumers.items():
            for consumer in consumers.keys() - self.servers.keys():
                if self.held.get(consumer) != name:
                    yield f"{consumer} has {consumers[consumer]} of {name}, and is no server"


def _place(server: Server) -> dict[str, Resources]:
    """What a server should have, by provider; a compute's provider is named as its host."""
    if server.host is None or server.status in _WITHOUT_HOST:
        return {}
    return {server.host: server.resources}


def _sum(all_resources: Iterable[Resources]) -> Resources:
    total: Counter[str] = Counter()
    for resources in all_resources:
        total.update(resources)
    return dict(total)
