"""A Keystone on the loopback: it logs a service in, and says what it knows of tokens (API v3)."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.json_server import Answer, Asked

PASSWORD = "service secret"


def _time(later: timedelta) -> str:
    return (datetime.now(UTC) + later).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FakeKeystone:
    """The tokens that it knows, and whether it takes the service's password."""

    def __init__(self, address: str) -> None:
        self.url = f"{address}/v3"
        self.endpoints = {"identity": self.url}
        """Type of service -> URL, for the catalogue."""
        self.tokens: dict[str, dict[str, Any]] = {}
        self.status: int | None = None
        """What every request is answered with, if it is set."""

    def token(
        self,
        *roles: str,
        scope: dict[str, Any] | None = None,
        user: str = "anna",
        expires_in: timedelta = timedelta(hours=1),
    ) -> str:
        """A new token of a user; of the system, unless it has another scope."""
        secret = uuid.uuid4().hex
        self.tokens[secret] = {
            "methods": ["password"],
            "user": {"id": f"id-{user}", "name": user, "domain": {"id": "d", "name": "Corp"}},
            "roles": [{"id": each, "name": each} for each in roles],
            "issued_at": _time(timedelta(hours=-1)),
            "expires_at": _time(expires_in),
            "audit_ids": ["a"],
            **(scope or {"system": {"all": True}}),
        }
        return secret

    def answer(self, asked: Asked) -> Answer:
        if self.status is not None:
            return Answer(self.status, {"error": {"message": "broken", "code": self.status}})
        if asked.path == "/v3":
            link = {"rel": "self", "href": self.url}
            return Answer(200, {"version": {"id": "v3.14", "status": "stable", "links": [link]}})
        if asked.method == "GET":
            found = self.tokens.get(asked.headers.get("X-Subject-Token", ""))
            return Answer(200, {"token": found}) if found else Answer(404, {"error": {"code": 404}})
        account = asked.body["auth"]["identity"]["password"]["user"]
        if account["password"] != PASSWORD:
            return Answer(401, {"error": {"message": "no", "code": 401}})
        secret = self.token("service", user=account["name"])
        catalog = [
            {
                "type": kind,
                "name": kind,
                "endpoints": [
                    {"interface": "internal", "url": url, "region": "r", "region_id": "r"}
                ],
            }
            for kind, url in self.endpoints.items()
        ]
        document = {"token": {**self.tokens[secret], "catalog": catalog}}
        return Answer(201, document, {"X-Subject-Token": secret})


def options(keystone: FakeKeystone, **others: Any) -> dict[str, Any]:
    """``[keystone_authtoken]`` of a service."""
    return {
        "auth_type": "password",
        "auth_url": keystone.url,
        "www_authenticate_uri": keystone.url,
        "username": "scheduler",
        "password": PASSWORD,
        "user_domain_name": "Default",
        "project_name": "service",
        "project_domain_name": "Default",
        "http_request_max_retries": 0,
        **others,
    }


def project(name: str) -> dict[str, Any]:
    return {"project": {"id": f"id-{name}", "name": name, "domain": {"id": "d", "name": "Corp"}}}
