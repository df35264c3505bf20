"""Settings of the inventory."""

from __future__ import annotations

import msgspec

from scheduler_worker.service.inventory.reports import DefaultRatios


class InventorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What host reports may leave out, and how long reservations last; times in seconds."""

    ratios: DefaultRatios = DefaultRatios()
    clusters: tuple[str, ...] = ()
    """The only clusters that a report may name; empty: any."""
    reservation_ttl_s: float = 600.0
    remember_answers_s: float = 120.0
