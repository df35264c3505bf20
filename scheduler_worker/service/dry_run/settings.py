"""Settings of a dry run."""

from __future__ import annotations

import msgspec


class DryRunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How copies of requests are compared with what another scheduler did; times in seconds."""

    wait_s: float = 120.0
    """Within which an instance has to show on a host."""
    max_requests: int = 1000
    """Requests that wait for that, and messages in the queue."""
    summary_interval_s: float = 60.0
    subset_size: int = 1
    """The number of best hosts among which a scheduler chooses at random."""
