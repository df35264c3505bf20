"""A client of the compute API and of Placement, as the administrator of the one project."""

import functools
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import FLAVORS, Flavor
from nova_cloud.waiting import WAIT_S, until

IMAGE = "11111111-2222-4333-8444-555555555555"
OTHER_IMAGE = "11111111-2222-4333-8444-666666666666"
PROJECT = "0123456789abcdef0123456789abcdef"
USER = "fedcba9876543210fedcba9876543210"
TIMEOUT_S = 180.0

_FAILED = {"error", "failed"}

Resources = dict[str, int]
"""Amounts by Placement's resource class."""


class Refused(CloudFailed):
    """Raised for an answer that is an error; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Server:
    """A server, as the compute API shows it to the administrator."""

    id: str
    name: str
    status: str
    host: str | None
    zone: str | None
    task: str | None
    resources: Resources
    image: str
    fault: str

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Server":
        flavor = body["flavor"]
        swap_gb = -(-(flavor["swap"] or 0) // 1024)
        disk_gb = flavor["disk"] + flavor["ephemeral"] + swap_gb
        return cls(
            id=body["id"],
            name=body["name"],
            status=body["status"],
            host=body["OS-EXT-SRV-ATTR:host"],
            zone=body["OS-EXT-AZ:availability_zone"],
            task=body["OS-EXT-STS:task_state"],
            resources=Flavor(flavor["vcpus"], flavor["ram"], disk_gb).resources,
            image=(body.get("image") or {}).get("id", ""),
            fault=body.get("fault", {}).get("message", ""),
        )


class Endpoint:
    """Requests to one of the services, in one microversion."""

    def __init__(self, url: str, version: str) -> None:
        self._url = url
        self._headers = {
            "X-Auth-Token": "admin",
            "X-User-Id": USER,
            "X-Project-Id": PROJECT,
            "X-Roles": "admin,manager,member,reader",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "OpenStack-API-Version": version,
        }

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer's body, None if it is empty. Raises Refused, CloudFailed."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - always HTTP
            self._url + path, data, self._headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")[:2000]
            raise Refused(error.code, f"{method} {path}: {error.code} {reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise CloudFailed(f"{method} {self._url}{path}: {error!r}") from error
        return json.loads(text) if text else None

    def get(self, path: str) -> Any:
        return self.call("GET", path)


class ComputeClient:
    """The compute API."""

    def __init__(self, url: str) -> None:
        self.api = Endpoint(f"{url}/v2.1", "compute 2.96")

    def make_flavors(self) -> None:
        """Make those of :data:`FLAVORS` that are not there."""
        there = self.flavors()
        for name, flavor in FLAVORS.items():
            if name not in there:
                body = {"name": name, "vcpus": flavor.vcpus, "ram": flavor.memory_mb}
                self.api.call("POST", "/flavors", {"flavor": {**body, "disk": flavor.disk_gb}})

    def boot(
        self,
        name: str,
        *,
        flavor: str = "small",
        count: int = 1,
        zone: str | None = None,
        host: str | None = None,
        group: str | None = None,
    ) -> list[str]:
        """Ask for servers without networks; answers their ids. They are not yet built."""
        server = {
            "name": name,
            "imageRef": IMAGE,
            "flavorRef": self.flavors()[flavor],
            "networks": "none",
            "min_count": count,
            "max_count": count,
            "return_reservation_id": True,
            **({"availability_zone": zone} if zone else {}),
            **({"host": host} if host else {}),
        }
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        reservation = self.api.call("POST", "/servers", {"server": server, **hints})
        return [
            each.id for each in self.servers(f"&reservation_id={reservation['reservation_id']}")
        ]

    def servers(self, query: str = "") -> list[Server]:
        found = self.api.get(f"/servers/detail?all_tenants=1&limit=1000{query}")
        return [Server.read(each) for each in found["servers"]]

    def server(self, server_id: str) -> Server | None:
        """None: there is none, or no more."""
        try:
            return Server.read(self.api.get(f"/servers/{server_id}")["server"])
        except Refused as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def act(self, server_id: str, action: str, arguments: object = None) -> None:
        """Ask for an action, such as ``migrate``; what becomes of it shows later."""
        self.api.call("POST", f"/servers/{server_id}/action", {action: arguments})

    def settled(self, server_id: str, status: str, timeout_s: float = WAIT_S) -> Server:
        """The server, once it has the status and no task. Raises CloudFailed if it gets another."""

        def ask() -> Server | None:
            server = self.server(server_id)
            if server is None:
                raise CloudFailed(f"there is no server {server_id}")
            if server.status == "ERROR" != status:
                raise CloudFailed(f"server {server.name} is not {status}: {server.fault}")
            if server.task is not None:
                return None
            if server.status == status:
                return server
            self._check_moves(server)
            return None

        return until(ask, f"server {server_id} is {status}", timeout_s)

    def evacuated(self, server: Server) -> Server:
        """The server away from its host: stopped, as Nova leaves those that it evacuates.

        Raises CloudFailed.
        """

        def ask() -> Server | None:
            # For a moment it is stopped already, and still shown on the host that it leaves.
            found = self.server(server.id)
            if found and found.status == "SHUTOFF" and not found.task:
                return found if found.host != server.host else None
            self._check_moves(server)
            return None

        return until(ask, f"server {server.name} has left {server.host}")

    def delete(self, server_ids: Sequence[str]) -> None:
        """Delete servers, and wait until they are gone."""
        for server_id in server_ids:
            try:
                self.api.call("DELETE", f"/servers/{server_id}")
            except Refused as error:
                if error.status != http.client.NOT_FOUND:
                    raise
        for server_id in server_ids:
            until(functools.partial(self._is_gone, server_id), f"{server_id} is deleted")

    def _check_moves(self, server: Server) -> None:
        """Raises CloudFailed if the server's latest move has failed."""
        for latest in self.migrations(server.id)[:1]:
            if latest["status"] in _FAILED:
                what = latest["migration_type"]
                raise CloudFailed(f"the {what} of {server.name} from {server.host} failed")

    def _is_gone(self, server_id: str) -> bool:
        return self.server(server_id) is None

    def migrations(self, server_id: str) -> list[dict[str, Any]]:
        """A server's migrations, evacuations and resizes, the latest first."""
        found = self.api.get(f"/os-migrations?instance_uuid={server_id}")["migrations"]
        return sorted(found, key=lambda each: -each["id"])

    def services(self) -> list[dict[str, Any]]:
        """Those of all hosts, and whether each is up."""
        found: list[dict[str, Any]] = self.api.get("/os-services")["services"]
        return found

    def force_down(self, host: str, is_down: bool) -> None:
        """Declare a host's compute dead, or take that back."""
        [service] = [each for each in self.services() if each["host"] == host]
        self.api.call("PUT", f"/os-services/{service['id']}", {"forced_down": is_down})

    def make_group(self, name: str, policy: str) -> str:
        """A server group; answers its id."""
        body = {"server_group": {"name": name, "policy": policy}}
        group: str = self.api.call("POST", "/os-server-groups", body)["server_group"]["id"]
        return group

    def delete_group(self, group: str) -> None:
        self.api.call("DELETE", f"/os-server-groups/{group}")

    def make_zone(self, name: str, host: str) -> int:
        """An aggregate that puts a host into a zone; answers the aggregate's id."""
        aggregate = self.make_aggregate(name, zone=name)
        self.add_host(aggregate, host)
        return aggregate

    def delete_zone(self, aggregate: int, host: str) -> None:
        self.remove_host(aggregate, host)
        self.delete_aggregate(aggregate)

    def make_aggregate(self, name: str, zone: str | None = None) -> int:
        """An aggregate without hosts; answers its id."""
        body = {"aggregate": {"name": name, "availability_zone": zone}}
        aggregate: int = self.api.call("POST", "/os-aggregates", body)["aggregate"]["id"]
        return aggregate

    def set_zone(self, aggregate: int, zone: str) -> None:
        body = {"aggregate": {"availability_zone": zone}}
        self.api.call("PUT", f"/os-aggregates/{aggregate}", body)

    def add_host(self, aggregate: int, host: str) -> None:
        self._act_on(aggregate, "add_host", host)

    def remove_host(self, aggregate: int, host: str) -> None:
        """Take a host out, if it is in; it must have no servers."""
        found = self.api.get(f"/os-aggregates/{aggregate}")["aggregate"]
        if host in found["hosts"]:
            self._act_on(aggregate, "remove_host", host)

    def delete_aggregate(self, aggregate: int) -> None:
        self.api.call("DELETE", f"/os-aggregates/{aggregate}")

    def _act_on(self, aggregate: int, action: str, host: str) -> None:
        self.api.call("POST", f"/os-aggregates/{aggregate}/action", {action: {"host": host}})

    def flavors(self) -> dict[str, str]:
        return {each["name"]: each["id"] for each in self.api.get("/flavors")["flavors"]}

    def make_flavor(self, name: str, flavor: Flavor, extra_specs: Mapping[str, str]) -> str:
        """A flavor with extra specs, for a while; answers its id."""
        body = {"name": name, "vcpus": flavor.vcpus, "ram": flavor.memory_mb}
        made = self.api.call("POST", "/flavors", {"flavor": {**body, "disk": flavor.disk_gb}})
        found: str = made["flavor"]["id"]
        specs = {"extra_specs": dict(extra_specs)}
        self.api.call("POST", f"/flavors/{found}/os-extra_specs", specs)
        return found

    def delete_flavor(self, flavor: str) -> None:
        self.api.call("DELETE", f"/flavors/{flavor}")


class PlacementClient:
    """Placement's API."""

    def __init__(self, url: str) -> None:
        self.api = Endpoint(url, "placement 1.39")

    def providers(self) -> dict[str, str]:
        """The uuid of each provider, by name."""
        found = self.api.get("/resource_providers")["resource_providers"]
        return {each["name"]: each["uuid"] for each in found}

    def set_traits(self, provider: str, change: Callable[[set[str]], set[str]]) -> None:
        """Change the traits of a provider; custom ones are made."""
        path = f"/resource_providers/{provider}/traits"
        body = self.api.get(path)
        traits = change(set(body["traits"]))
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                self.api.call("PUT", f"/traits/{trait}")
        self.api.call("PUT", path, {**body, "traits": sorted(traits)})

    def make_class(self, name: str) -> None:
        """A resource class, if it is not there."""
        self.api.call("PUT", f"/resource_classes/{name}")

    def make_child(self, name: str, parent: str, resource_class: str, total: int) -> str:
        """A provider below another; answers its uuid."""
        named = {"name": name, "parent_provider_uuid": parent}
        found: str = self.api.call("POST", "/resource_providers", named)["uuid"]
        inventories = {resource_class: {"total": total}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        self.api.call("PUT", f"/resource_providers/{found}/inventories", body)
        return found

    def delete_provider(self, provider: str) -> None:
        self.api.call("DELETE", f"/resource_providers/{provider}")

    def usages(self, provider: str) -> Resources:
        """A provider's use, without the classes that nobody uses."""
        found = self.api.get(f"/resource_providers/{provider}/usages")["usages"]
        return {name: amount for name, amount in found.items() if amount}

    def inventories(self, provider: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]]
        found = self.api.get(f"/resource_providers/{provider}/inventories")["inventories"]
        return found

    def consumers(self, provider: str) -> dict[str, Resources]:
        """What each consumer has of a provider."""
        found = self.api.get(f"/resource_providers/{provider}/allocations")["allocations"]
        return {consumer: each["resources"] for consumer, each in found.items()}
