"""The worker with a defect, to see that the suite notices it.

    python -m tests.integration.faults.broken --config-file FILE DEFECT

runs ``scheduler-worker`` with it; :data:`DEFECTS` has the names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler_worker.cli import worker
from scheduler_worker.rpc.serving.deliveries import Delivery, DeliveryTracker


def commits_without_the_token() -> None:
    """Every former holder of the lock may write."""
    replace(
        "commit", r"local is_held = .*?\nif not is_held", "local is_held = true\nif not is_held"
    )


def releases_what_others_hold() -> None:
    """A release ends the lease of any holder."""
    replace("leave", r"if meta\.holder == owner then (.*?) end", r"\1")


def acknowledges_early() -> None:
    """A message is off the broker's books before it is begun."""
    take = DeliveryTracker.take

    def taken(self: DeliveryTracker, delivery: Delivery) -> None:
        take(self, delivery)
        self._settle(delivery.tag)

    DeliveryTracker.take = taken  # type: ignore[assignment]


def replace(name: str, pattern: str, text: str) -> None:
    """Replace text in a Lua file when it is read."""
    whole = Path.read_text

    def read_text(path: Path, *options: Any, **named: Any) -> str:
        found = whole(path, *options, **named)
        if path.name == f"{name}.lua":
            found, count = re.subn(pattern, text, found, flags=re.DOTALL)
            if count != 1:
                raise ValueError(f"{path} does not have {pattern} once")
        return found

    Path.read_text = read_text  # type: ignore[assignment]


DEFECTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (commits_without_the_token, releases_what_others_hold, acknowledges_early)
}

if __name__ == "__main__":
    *arguments, defect = sys.argv[1:]
    DEFECTS[defect]()
    sys.exit(worker.main(arguments))
