"""An oVirt engine whose answers are files."""

from pathlib import Path
from urllib.parse import parse_qs

from tests.support.json_server import Answer, Asked

ANSWERS = Path(__file__).resolve().parents[1] / "samples" / "ovirt_engine"
USER, PASSWORD, TOKEN = "reader@internal", "secret words", "t0ken"


class FakeEngine:
    """What is asked of it, and what it answers beside the files."""

    def __init__(self, address: str) -> None:
        self.url = f"{address}/ovirt-engine/api"
        self.asked: list[str] = []
        self.replaced: dict[str, tuple[int, str]] = {}
        """Path below the API -> status and text, in place of the file."""

    def stored(self, name: str) -> str:
        return (ANSWERS / f"{name}.xml").read_text()

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(f"{asked.method} {asked.path}")
        if asked.path.endswith("sso-logout"):
            return Answer(200, {})
        if asked.method == "POST":
            form = parse_qs(asked.body)
            if (form["username"], form["password"]) == ([USER], [PASSWORD]):
                return Answer(200, {"access_token": TOKEN})
            refusal = {"error": "access_denied", "error_description": "Cannot authenticate"}
            return Answer(400, [refusal])
        if asked.headers["Authorization"] != f"Bearer {TOKEN}":
            return Answer(401)
        name = asked.path.removeprefix("/ovirt-engine/api/")
        status, text = self.replaced.get(name) or (200, self.stored(name))
        return Answer(status, text.encode(), {"Content-Type": "application/xml;charset=UTF-8"})
