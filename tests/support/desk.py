"""An administrator's desk: commands on an archive of policies."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from scheduler_worker.cli.manage import main


class Desk:
    """Runs ``scheduler-worker-manage`` on a SQLite file in a folder of its own.

    The state is in memory: each command makes its book of what the archive has.
    """

    def __init__(self, folder: Path) -> None:
        self._config = folder / "worker.conf"
        self._folder = folder
        self.connect(f"sqlite:///{folder / 'policies.sqlite'}")

    def connect(self, url: str) -> None:
        self._config.write_text(f"[policy_store]\nconnection = {url}\n")

    def run(self, *arguments: str) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = main(["--config-file", str(self._config), *arguments])
        return status, out.getvalue()

    def file(self, text: str, name: str = "policies.yaml") -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)

    def listed(self) -> dict[str, dict[str, Any]]:
        """The rows of all policies, by name."""
        rows = json.loads(self.run("policy", "list", "-f", "json")[1])
        return {row["Name"]: row for row in rows}

    def stored(self, *names: str) -> str:
        return self.run("policy", "export", *names)[1]
