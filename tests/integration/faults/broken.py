"""The worker with one of its promises taken out, to see that the suite would notice.

    python -m tests.integration.faults.broken --config-file FILE DEFECT

runs ``scheduler-worker`` so; :data:`DEFECTS` has the names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler_worker.cli import worker
from scheduler_worker.rpc.amqp.ledger import Delivery, Ledger


def commits_without_the_token() -> None:
    """Whoever once held the lock may write."""
    _replace(
        "commit", r"local is_held = .*?\nif not is_held", "local is_held = true\nif not is_held"
    )


def releases_what_others_hold() -> None:
    """Whoever gives up a hold ends whichever there is."""
    _replace("leave", r"if meta\.holder == owner then (.*?) end", r"\1")


def acknowledges_early() -> None:
    """A message is off the broker's books before it is begun."""
    take = Ledger.take

    def taken(self: Ledger, delivery: Delivery) -> None:
        take(self, delivery)
        self._settle(delivery.tag)

    Ledger.take = taken  # type: ignore[method-assign]


def _replace(name: str, pattern: str, text: str) -> None:
    """Change a Lua file as it is read, whoever reads it."""
    whole = Path.read_text

    def read_text(path: Path, *options: Any, **named: Any) -> str:
        found = whole(path, *options, **named)
        if path.name == f"{name}.lua":
            found, count = re.subn(pattern, text, found, flags=re.DOTALL)
            if count != 1:
                raise ValueError(f"{path} does not have {pattern} once")
        return found

    Path.read_text = read_text  # type: ignore[method-assign, assignment]


DEFECTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (commits_without_the_token, releases_what_others_hold, acknowledges_early)
}

if __name__ == "__main__":
    *arguments, defect = sys.argv[1:]
    DEFECTS[defect]()
    sys.exit(worker.main(arguments))
