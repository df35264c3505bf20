"""Someone who has servers in the cloud, and compares the books after each step."""

from nova_cloud.books import Books
from nova_cloud.client import Server
from nova_cloud.cloud import Cloud
from nova_cloud.fleet import FLAVORS
from nova_cloud.waiting import until


class Tenant:
    """Each step returns when it is done and the books agree; it raises CloudFailed otherwise."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.nova = cloud.compute
        self.placement = cloud.placement

    def boot(self, flavor: str = "small", *, count: int = 1, **where: str | None) -> list[Server]:
        """Servers in a ``zone``, on a ``host`` or in a ``group``, or anywhere."""
        asked = self.ask(flavor, count=count, **where)
        servers = [self.nova.settled(each, "ACTIVE") for each in asked]
        books = self.books()
        for each in servers:
            assert books.places(each.id) == {each.host: FLAVORS[flavor].resources}
        return servers

    def refused(self, flavor: str = "small", **where: str | None) -> Server:
        """The server of a request that cannot be met: without a host, without an allocation."""
        [asked] = self.ask(flavor, count=1, **where)
        server = self.nova.settled(asked, "ERROR")
        assert server.host is None
        assert self.books().places(server.id) == {}
        return server

    def ask(self, flavor: str, *, count: int = 1, **where: str | None) -> list[str]:
        """The ids of servers that are still to be built."""
        ids = self.nova.boot("server", flavor=flavor, count=count, **where)
        assert len(ids) == count
        return ids

    def resize(self, server: Server, flavor: str) -> Server:
        """The server on another host, waiting to be confirmed; it holds both places."""
        arguments = {"flavorRef": self.nova.flavors()[flavor]}
        return self._moved(server, "resize", arguments, flavor)

    def migrate(self, server: Server, flavor: str, host: str | None = None) -> Server:
        """Likewise, with the flavor that it has."""
        return self._moved(server, "migrate", {"host": host}, flavor)

    def confirm(self, server: Server) -> Server:
        self.nova.act(server.id, "confirmResize")
        return self.active(server)

    def revert(self, server: Server) -> Server:
        self.nova.act(server.id, "revertResize")
        return self.active(server)

    def live_migrate(self, server: Server, host: str | None = None) -> Server:
        """The server after it has moved, which it must."""
        arguments = {"host": host, "block_migration": "auto"}
        self.nova.act(server.id, "os-migrateLive", arguments)
        moved = self.active(server)
        assert moved.host != server.host
        return moved

    def rebuild(self, server: Server, image: str) -> Server:
        """The server with an image, where it was."""
        self.nova.act(server.id, "rebuild", {"imageRef": image})
        rebuilt = self.active(server)
        assert (rebuilt.host, rebuilt.image) == (server.host, image)
        return rebuilt

    def active(self, server: Server, status: str = "ACTIVE") -> Server:
        """The server once it is active, on one host and nowhere else."""
        found = self.nova.settled(server.id, status)
        assert found.host is not None
        assert self.books().places(server.id) == {found.host: found.resources}
        return found

    def await_task(self, server_id: str, task: str) -> None:
        def is_there() -> bool:
            server = self.nova.server(server_id)
            return server is not None and server.task == task

        until(is_there, f"{server_id} is {task}")

    def books(self) -> Books:
        return self.cloud.agreed_books()

    def leave(self) -> None:
        """Delete every server; then nothing may be used or allocated."""
        self.nova.delete([each.id for each in self.nova.servers()])
        assert self.books().is_empty

    def _moved(self, server: Server, action: str, arguments: object, flavor: str) -> Server:
        self.nova.act(server.id, action, arguments)
        moved = self.nova.settled(server.id, "VERIFY_RESIZE")
        assert moved.host != server.host
        books = self.books()
        assert books.places(moved.id) == {moved.host: FLAVORS[flavor].resources}
        [held] = [each for each, source in books.held.items() if source == server.host]
        assert books.places(held) == {server.host: server.resources}
        return moved
