"""Is any host over-promised? Compares limits with books, and with what the worker itself holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from replay.books import NOTHING, RESOURCES, Amounts, Books, limit_of, use_of
from replay.driver import Client
from replay.streams import Plain

ROUNDING = 1e-6


def promises(client: Client) -> list[Plain]:
    """Every live promise at the worker."""
    return list(_pages(lambda marker: client.list_reservations(marker=marker), "reservations"))


def over_promised(client: Client, books: Books, promised: list[Plain]) -> list[str]:
    """One line for each excess: by our books, and by the worker's use plus its promises."""
    held = _held(promised)
    problems = [
        line for book in books for line in _excesses(f"books: {book.host}", book.use, book.limit)
    ]
    for host in _pages(lambda marker: client.list_hosts(marker=marker), "hosts"):
        use = use_of(host).plus(held.get(host["uuid"], NOTHING))
        problems += _excesses(f"worker: {host['host']}", use, limit_of(host))
    return problems


def _held(promised: list[Plain]) -> dict[str, Amounts]:
    held: dict[str, Amounts] = {}
    for promise in promised:
        taken, host = promise["resources"], promise["host_uuid"]
        amounts = Amounts(
            taken.get("vcpus", 0), taken.get("memory_mb", 0), taken.get("disk_mb", 0) / 1024
        )
        held[host] = held.get(host, NOTHING).plus(amounts)
    return held


def _excesses(where: str, use: Amounts, limit: Amounts) -> list[str]:
    return [
        f"{where} has {getattr(use, name):,.10g} {name} in use or promised of {limit_:,.10g}"
        for name in RESOURCES
        if getattr(use, name) > (limit_ := getattr(limit, name)) + ROUNDING
    ]


def _pages(page: Callable[[str | None], Plain], key: str) -> Iterator[Plain]:
    marker: str | None = None
    while True:
        found = page(marker)
        yield from found[key]
        marker = found.get("next")
        if marker is None:
            return
