"""The little of Glance and Neutron that Nova asks for servers without networks.

Every image there is: raw, small, active. There is nothing of any kind in the network service.
Run as ``python stub.py PORT``; listens on the loopback.
"""

import json
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOMENT = "2026-01-01T00:00:00Z"
BASE_PROPERTIES = (
    *("id", "name", "status", "visibility", "protected", "container_format", "disk_format"),
    *("size", "min_ram", "min_disk", "checksum", "owner", "tags", "os_hidden", "created_at"),
    *("updated_at", "self", "file", "schema", "virtual_size", "locations", "direct_url"),
)
"""What Glance's schema names: its client takes the rest for properties of users."""


def image(image_id: str) -> dict[str, Any]:
    return {
        "id": image_id,
        "name": "image",
        "status": "active",
        "visibility": "public",
        "protected": False,
        "container_format": "bare",
        "disk_format": "raw",
        "size": 1 << 20,
        "min_ram": 0,
        "min_disk": 0,
        "checksum": "0" * 32,
        "owner": "demo",
        "tags": [],
        "os_hidden": False,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "self": f"/v2/images/{image_id}",
        "file": f"/v2/images/{image_id}/file",
        "schema": "/v2/schemas/image",
    }


def answer_to(method: str, parts: list[str]) -> dict[str, Any] | None:
    """The body; None: there is nothing of this name."""
    if parts and parts[0] in {"images", "schemas"}:
        parts = ["v2", *parts]
    match parts:
        case []:
            return {"versions": [{"id": "v2.9", "status": "CURRENT", "links": []}]}
        case ["v2", "images"] if method == "POST":  # a snapshot
            return image(str(uuid.uuid4()))
        case ["v2", "images", image_id]:
            return image(image_id)
        case ["v2", "schemas", name]:
            return {
                "name": name,
                "properties": {base_property: {} for base_property in BASE_PROPERTIES},
                "additionalProperties": {"type": "string"},
                "links": [],
            }
        case ["v2.0", resource]:
            return {resource.removesuffix(".json").replace("-", "_"): []}
    return None


class Stub(BaseHTTPRequestHandler):
    """Answers by :func:`answer_to`."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = [each for each in self.path.partition("?")[0].split("/") if each]
        answer = answer_to(self.command, parts)
        body = json.dumps({"not served": self.path} if answer is None else answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def __getattr__(self, name: str) -> Any:
        """``do_GET`` and so on."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Stub).serve_forever()
