"""A real Placement on the loopback, in an environment of its own, on a database of its own."""

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from oslo_config import cfg

from scheduler_worker.backends.placement.session import open_session
from tests.support.servers import LOOPBACK, Server
from tests.support.workers import write_config

THREADS = 8


class PlacementServer(Server):
    """Placement without Keystone: everybody is an administrator."""

    name = "Placement"

    def __init__(self, directory: Path, python: Path, database: str) -> None:
        super().__init__(directory)
        self._python = python
        self._database = database.replace("mariadb://", "mysql+pymysql://")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def options(self) -> dict[str, Any]:
        """The group ``[placement]`` of who uses it."""
        return {
            "auth_type": "admin_token",
            "token": "admin",
            "endpoint": self.url,
            "endpoint_override": self.url,
        }

    def command(self) -> list[str]:
        app = Path(__file__).with_name("placement_app.py")
        return [str(self._python), str(app), str(self.port), str(THREADS)]

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            # Its own retries look for room in the snapshot of their first attempt, so concurrent
            # writers get more than there is.
            "OS_PLACEMENT__ALLOCATION_CONFLICT_RETRY_COUNT": "1",
            "OS_PLACEMENT_DATABASE__CONNECTION": self._database,
            "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "True",
            "OS_API__AUTH_STRATEGY": "noauth2",
        }

    def check_ready(self) -> None:
        with urlopen(self.url, timeout=5) as answer:
            answer.read()


class Cloud:
    """What a test puts into Placement, and reads there."""

    def __init__(self, server: PlacementServer) -> None:
        file = write_config(server.directory / "client.conf", placement=server.options())
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[str(file)], default_config_dirs=[])
        self.session = open_session(conf, connections=4)

    def add(
        self, name: str, provider: str | None = None, parent: str = "", /, **inventories: int
    ) -> str:
        """A provider with these inventories, alone or below another; returns its uuid."""
        body = {"name": name, "uuid": provider or str(uuid.uuid4())}
        below = {"parent_provider_uuid": parent} if parent else {}
        self._do("POST", "/resource_providers", body | below)
        self.resize(body["uuid"], **inventories)
        return body["uuid"]

    def claim(self, provider: str, **amounts: int) -> str:
        """A new consumer of a provider; returns its uuid."""
        consumer = str(uuid.uuid4())
        assert self.put_allocation(consumer, {provider: {"resources": amounts}}).is_ok
        return consumer

    def put_allocation(self, consumer: str, allocations: Any, mappings: Any = None) -> Any:
        """The answer to a claim of a new consumer."""
        body = {"allocations": allocations, "project_id": "project", "user_id": "user"}
        body |= {"consumer_generation": None} | ({"mappings": mappings} if mappings else {})
        plain = json.loads(json.dumps(body))
        return self.session.request("PUT", f"/allocations/{consumer}", plain)

    def give_back(self, consumer: str) -> None:
        self._do("DELETE", f"/allocations/{consumer}")

    def add_below(self, parent: str, name: str, **inventories: int) -> str:
        return self.add(name, None, parent, **inventories)

    def put(self, provider: str, what: str, values: list[str]) -> None:
        """Replace ``traits`` or ``aggregates`` of a provider."""
        path = f"/resource_providers/{provider}"
        body = {"resource_provider_generation": self._do("GET", path)["generation"], what: values}
        self._do("PUT", f"{path}/{what}", body)

    def resize(self, provider: str, **inventories: int) -> None:
        """Replace the provider's inventories."""
        path = f"/resource_providers/{provider}"
        generation = self._do("GET", path)["generation"]
        totals = {each: {"total": total} for each, total in inventories.items() if total}
        body = {"resource_provider_generation": generation, "inventories": totals}
        self._do("PUT", f"{path}/inventories", body)

    def remove(self, provider: str) -> None:
        self._do("DELETE", f"/resource_providers/{provider}")

    def used(self, provider: str) -> dict[str, int]:
        return dict(self._do("GET", f"/resource_providers/{provider}/usages")["usages"])

    def consumers(self, provider: str) -> set[str]:
        return set(self._do("GET", f"/resource_providers/{provider}/allocations")["allocations"])

    def _do(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.session.request(method, path, body)
        assert answer.is_ok, (method, path, answer)
        return answer.body
