"""Placement, in which other writers are faster when that is asked for.

Run by uWSGI in the environment that has Placement. NOVA_CLOUD_FAULTS is a JSON file; its
``placement`` is how many of the first writes for each consumer are refused as such.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from placement.wsgi.api import application as placement

FAULTS = Path(os.environ["NOVA_CLOUD_FAULTS"])
CONFLICTS = FAULTS.with_name("conflicts")
"""A file for each write of each consumer that was refused: there are several processes."""
REFUSAL = {"status": 409, "title": "Conflict", "code": "placement.concurrent_update"}

Start = Callable[[str, list[tuple[str, str]]], Any]


def application(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
    """Placement's application, but for what is refused."""
    is_write = environ["REQUEST_METHOD"] in {"POST", "PUT"}
    if not is_write or not environ["PATH_INFO"].startswith("/allocations"):
        return placement(environ, start)
    content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if not any(map(_is_refused, _consumers(environ["PATH_INFO"], content))):
        return placement(environ | {"wsgi.input": _Read(content)}, start)
    detail = "Another thread concurrently updated the resource provider data."
    body = json.dumps({"errors": [REFUSAL | {"detail": detail}]}).encode()
    start("409 Conflict", [("Content-Type", "application/json")])
    return [body]


class _Read:
    """A body that was read before."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    def read(self, size: int = -1) -> bytes:
        size = len(self._left) if size < 0 else size
        found, self._left = self._left[:size], self._left[size:]
        return found


def _consumers(path: str, content: bytes) -> list[str]:
    uuid = path.removeprefix("/allocations").strip("/")
    return [uuid] if uuid else list(json.loads(content))


def _is_refused(consumer: str) -> bool:
    faults = json.loads(FAULTS.read_text()) if FAULTS.exists() else {}
    CONFLICTS.mkdir(exist_ok=True)
    for number in range(faults.get("placement", 0)):
        with contextlib.suppress(FileExistsError):
            (CONFLICTS / f"{consumer}.{number}").touch(exist_ok=False)
            return True
    return False
