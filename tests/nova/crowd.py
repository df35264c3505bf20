"""Clients of the compute API that all boot at once, and what became of their servers."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from nova_cloud.books import Books
from nova_cloud.client import ComputeClient, PlacementClient, Server
from nova_cloud.cloud import Cloud
from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import FLAVORS
from nova_cloud.waiting import until

from tests.support.threads import Threads

CLIENTS = 16
BUILT_S = 600.0
"""For all servers of a crowd; only a failing test reaches it."""
_DONE = {"ACTIVE", "ERROR"}


class Crowd:
    """Sixteen clients. Nothing may be in the cloud before they come."""

    def __init__(self, cloud: Cloud, flavor: str = "small") -> None:
        self.cloud = cloud
        self.flavor = flavor
        self._asked: list[str] = []

    def room(self) -> int:
        placement = self.cloud.placement
        return sum(
            _room(placement.inventories(provider), FLAVORS[self.flavor].resources)
            for provider in placement.providers().values()
        )

    def boot(self, count: int, meanwhile: Callable[[], object] = lambda: None) -> list[Server]:
        """Ask for so many servers, each in a request of its own, and wait until all are settled.

        ``meanwhile`` is done while they are asked for. Raises CloudFailed.
        """
        with Threads(CLIENTS + 1) as pool:
            other = pool.submit(meanwhile)
            for asked in pool.map(self._ask, range(count)):
                self._asked += asked
            other.result()
        return until(self._settled, f"{count} servers are built or refused", BUILT_S)

    def await_active(self, count: int) -> None:
        """Until so many are active: the cloud is in the middle of it."""

        def are_active() -> bool:
            found = self.cloud.compute.servers()
            return sum(each.status == "ACTIVE" for each in found) >= count

        until(are_active, f"{count} servers are active")

    def check(self, servers: list[Server], *faults: str) -> list[Server]:
        """The active ones, after each was found placed once and no host over-committed.

        The others were refused for want of a host, or for one of these ``faults``.
        """
        books = self.cloud.agreed_books()
        active = [each for each in servers if each.status == "ACTIVE"]
        for each in active:
            assert books.places(each.id) == {each.host: FLAVORS[self.flavor].resources}
        for each in servers:
            if each.status == "ERROR":
                assert any(some in each.fault for some in ("No valid host", *faults)), each
                assert books.places(each.id) == {}
        too_much = overcommitted(books, self.cloud.placement)
        assert too_much == [], too_much
        return active

    def _ask(self, number: int) -> list[str]:
        nova = ComputeClient(self.cloud.api.url)
        return nova.boot(f"crowd-{number}", flavor=self.flavor)

    def _settled(self) -> list[Server] | None:
        found = {each.id: each for each in self.cloud.compute.servers()}
        servers = [found[each] for each in self._asked if each in found]
        assert len(servers) == len(self._asked), "a server has gone"
        is_settled = all(each.status in _DONE and each.task is None for each in servers)
        return servers if is_settled else None


class Traffic:
    """Clients that boot a server each, delete it when it is active, and boot the next one."""

    def __init__(self, cloud: Cloud, clients: int, flavor: str = "small") -> None:
        self._nova = cloud.compute
        self._flavor = flavor
        self._built = 0
        self._failures: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._clients = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for each in self._clients:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def await_built(self, more: int) -> None:
        """Until so many more servers were built, or something failed."""
        with self._changed:
            wanted = self._built + more
            assert self._changed.wait_for(
                lambda: self._built >= wanted or self._failures, BUILT_S
            ), f"{self._built} of {wanted} servers"

    def finish(self) -> Sequence[str]:
        """Let each client finish its last server; why servers were not built."""
        self._is_over = True
        for each in self._clients:
            each.join(BUILT_S)
        return self._failures

    def _run(self, number: int) -> None:
        while not self._is_over:
            try:
                [server_id] = self._nova.boot(f"traffic-{number}", flavor=self._flavor)
                self._nova.settled(server_id, "ACTIVE")
                self._nova.delete([server_id])
            except CloudFailed as error:
                with self._changed:
                    self._failures.append(str(error))
                    self._changed.notify_all()
                return
            with self._changed:
                self._built += 1
                self._changed.notify_all()


def overcommitted(books: Books, placement: PlacementClient) -> list[str]:
    """The providers that give more than they have, each with the class and the amounts."""
    found = []
    for uuid, name in books.names.items():
        for resource_class, inventory in placement.inventories(uuid).items():
            used = books.usages[name].get(resource_class, 0)
            if used > _capacity(inventory):
                found.append(f"{name}: {used} {resource_class} of {_capacity(inventory)}")
    return found


def _room(inventories: Mapping[str, Mapping[str, Any]], resources: Mapping[str, int]) -> int:
    return min(_capacity(inventories[name]) // amount for name, amount in resources.items())


def _capacity(inventory: Mapping[str, Any]) -> int:
    return int((inventory["total"] - inventory["reserved"]) * inventory["allocation_ratio"])
