"""Settings of a dry run."""

from typing import Annotated

import msgspec

from scheduler_worker.options import Opt


class DryRunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How copies of requests are compared with what another scheduler did; times in seconds."""

    enabled: Annotated[bool, Opt()] = False
    """Whether this worker serves nobody, and decides on copies of the requests that nova-scheduler
    serves on [rpc] topic; it logs where Nova put an instance elsewhere, and why. Reserves and
    claims nothing. Needs [nova_feed] enabled, and RabbitMQ."""
    wait_s: Annotated[float, Opt(min=1, max=3600)] = 120.0
    """Seconds within which an instance has to show on a host in Nova's databases to be compared."""
    max_requests: Annotated[int, Opt(min=1, max=100_000)] = 1000
    """Requests that wait for that, at most, and messages in the queue of copies. Beyond these the
    oldest are dropped, and counted."""
    summary_interval_s: Annotated[float, Opt(min=1, max=86_400)] = 60.0
    """Seconds between two lines of the log with how many requests were decided alike."""
    subset_size: int = 1
    """The number of best hosts among which a scheduler chooses at random."""
