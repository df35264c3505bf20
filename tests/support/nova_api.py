"""A Nova on the loopback, with its Keystone: the part of the compute API that migrates servers.

Paths, documents, orders and status codes are those of Nova's public reference,
https://docs.openstack.org/api-ref/compute/ (servers-actions, os-migrations, server-migrations),
in microversion 2.65.
"""

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support import keystone
from tests.support.json_server import Answer, Asked, serving

ABORTABLE = ("queued", "preparing", "running")
_LEAST = (2, 65)


def fault(status: int, kind: str, message: str) -> Answer:
    """An error as Nova answers it."""
    return Answer(status, {kind: {"code": status, "message": message}})


class FakeNova:
    """Servers and their migrations; ``asked`` has every request that had a valid token."""

    def __init__(self, address: str, tokens: keystone.FakeKeystone) -> None:
        self.url = f"{address}/v2.1"
        self.keystone = tokens
        self.newest = (2, 95)
        """The highest microversion that it knows."""
        self.hosts: dict[str, str] = {}
        """Server -> the host on which it runs."""
        self.tasks: dict[str, str] = {}
        """Server -> what Nova does with it at present."""
        self.migrations: list[dict[str, Any]] = []
        """The first one first."""
        self.asked: list[Asked] = []
        self.broken: dict[str, Answer | None] = {}
        """Method -> what is answered instead; None: the connection is closed."""
        self.on_migrate: Callable[[str], None] = lambda _: None
        """Called with the server when a live migration was asked for, before that is answered."""
        self.answers = threading.Event()
        """While it is not set nothing is answered, until the end of the test."""
        self.answers.set()
        self._guard = threading.Lock()
        self._ids = itertools.count(1)

    # What Nova does

    def migrate(self, server: str, status: str = "accepted", **others: Any) -> dict[str, Any]:
        """A live migration of a server begins to exist."""
        now = datetime.now(UTC).replace(tzinfo=None)
        row = {
            "id": next(self._ids),
            "uuid": str(uuid.uuid4()),
            "instance_uuid": server,
            "migration_type": "live-migration",
            "status": status,
            "source_compute": self.hosts.get(server),
            "source_node": self.hosts.get(server),
            "dest_compute": None,
            "dest_host": None,
            "dest_node": None,
            "new_instance_type_id": 1,
            "old_instance_type_id": 1,
            "created_at": now.isoformat(timespec="microseconds"),
            "updated_at": None,
            **others,
        }
        with self._guard:
            self.migrations.append(row)
        return row

    def asked_for(self, method: str, ending: str) -> list[Asked]:
        """The requests with this method whose path ends so."""
        return [
            each
            for each in self.asked
            if (each.method, each.path.endswith(ending)) == (method, True)
        ]

    # What it answers

    def answer(self, asked: Asked) -> Answer | None:
        if asked.headers.get("X-Auth-Token") not in self.keystone.tokens:
            return Answer(401, {"error": {"code": 401, "title": "Unauthorized"}})
        self.asked.append(asked)
        if not self.answers.is_set():
            self.answers.wait()
            return None
        version = asked.headers.get("OpenStack-API-Version", "compute 2.1").removeprefix("compute ")
        wanted = tuple(int(each) for each in version.split("."))
        if wanted > self.newest:
            message = f"Version {version} is not supported by the API."
            return fault(406, "computeFault", message)
        assert wanted >= _LEAST, "older microversions are not imitated"
        if asked.method in self.broken:
            return self.broken[asked.method]
        with self._guard:
            answer = self._answer(asked)
        if asked.method == "POST" and answer.status == 202:
            self.on_migrate(asked.path.split("/")[3])
        return answer

    def _answer(self, asked: Asked) -> Answer:
        match asked.method, asked.path.removeprefix("/v2.1/").split("/"):
            case "GET", ["os-migrations"]:
                return self._listed(asked.query)
            case _, ["servers", server, *_] if server not in self.hosts:
                return fault(404, "itemNotFound", f"Instance {server} could not be found.")
            case "GET", ["servers", server]:
                return self._shown(server)
            case "POST", ["servers", server, "action"]:
                return self._asked_to_migrate(server, asked.body)
            case "DELETE", ["servers", server, "migrations", number]:
                return self._abort(server, int(number))
        return fault(404, "itemNotFound", "The resource could not be found.")

    def _listed(self, query: dict[str, str]) -> Answer:
        known = {"instance_uuid", "limit", "marker", "migration_type", "status"}
        if not query.keys() <= known:
            return fault(400, "badRequest", f"Additional properties: {query.keys() - known}")
        rows = sorted(self.migrations, key=lambda row: (row["created_at"], row["id"]), reverse=True)
        for name in query.keys() & {"instance_uuid", "migration_type", "status"}:
            rows = [row for row in rows if row[name] == query[name]]
        if "marker" in query:
            names = [row["uuid"] for row in rows]
            if query["marker"] not in names:
                return fault(400, "badRequest", f"Marker {query['marker']} could not be found.")
            rows = rows[names.index(query["marker"]) + 1 :]
        limit = int(query.get("limit", 1000))
        document: dict[str, Any] = {"migrations": rows[:limit]}
        if len(rows) > limit:
            href = f"{self.url}/os-migrations?limit={limit}&marker={rows[limit - 1]['uuid']}"
            document["migrations_links"] = [{"rel": "next", "href": href}]
        return Answer(200, document)

    def _shown(self, server: str) -> Answer:
        document = {
            "id": server,
            "status": "MIGRATING" if server in self.tasks else "ACTIVE",
            "OS-EXT-SRV-ATTR:host": self.hosts[server],
            "OS-EXT-STS:task_state": self.tasks.get(server),
            "OS-EXT-STS:vm_state": "active",
        }
        return Answer(200, {"server": document})

    def _asked_to_migrate(self, server: str, body: Any) -> Answer:
        if body != {"os-migrateLive": {"host": None, "block_migration": "auto"}}:
            return fault(400, "badRequest", f"Invalid input: {body}")
        if server in self.tasks:
            message = (
                f"Cannot 'os-migrateLive' instance {server} while it is in task_state migrating"
            )
            return fault(409, "conflictingRequest", message)
        self.tasks[server] = "migrating"
        return Answer(202)

    def _abort(self, server: str, number: int) -> Answer:
        for row in self.migrations:
            if (row["id"], row["instance_uuid"]) == (number, server):
                break
        else:
            return fault(404, "itemNotFound", f"Migration {number} for server is not found")
        if row["status"] not in ABORTABLE:
            message = f"Migration {number} state of instance {server} is {row['status']}."
            return fault(400, "badRequest", message)
        row["status"] = "cancelled"
        self.tasks.pop(server, None)
        return Answer(202)


@contextmanager
def running_nova() -> Iterator[FakeNova]:
    with (
        serving(keystone.FakeKeystone) as tokens,
        serving(lambda address: FakeNova(address, tokens)) as nova,
    ):
        tokens.endpoints["compute"] = nova.url
        try:
            yield nova
        finally:
            nova.answers.set()


def ago(seconds: float) -> str:
    """A time as Nova writes it."""
    then = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=seconds)
    return then.isoformat(timespec="microseconds")


def options(nova: FakeNova, **others: Any) -> dict[str, Any]:
    """``[nova]`` of a worker."""
    account = keystone.options(nova.keystone)
    for name in ("www_authenticate_uri", "http_request_max_retries"):
        del account[name]
    return {**account, **others}
