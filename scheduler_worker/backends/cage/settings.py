"""Settings of external units and their cages."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from scheduler_worker.scheduling.external.contract import OnFailure


class CageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[external_units]``; times in seconds."""

    directory: Path
    """Each ``*.py`` in it is a file with units."""
    python: str = sys.executable
    user: str | None = "nobody"
    """Whom the code runs as where this process is root."""
    timeout_s: float = 2.0
    """For one call; at most half of it for waiting until a process is free."""
    load_timeout_s: float = 10.0
    """For starting a process and loading its file."""
    memory_mb: int = 512
    processes: int = 2
    """Warm processes for each file: the calls of its units that run at a time."""
    max_tasks: int = 32
    """Processes and threads inside a cage."""
    network: bool = False
    on_failure: OnFailure = "pass"
    """What happens to hosts where a filter fails that declares nothing."""
    rest_s: float = 0.5
    """For how long a file is not called after two calls in a row had to be killed; after each
    further one twice as long, up to 30 seconds."""
    max_output_bytes: int = 4 * 2**20
