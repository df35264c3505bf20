"""Checks for overbooked hosts, by the books and by the worker's use and reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from replay.books import NOTHING, RESOURCES, Amounts, Books, limit_of, use_of
from replay.driver import Client
from replay.streams import Plain

ROUNDING = 1e-6


def reservations(client: Client) -> list[Plain]:
    """All reservations of the worker."""
    return list(_pages(lambda marker: client.list_reservations(marker=marker), "reservations"))


def overbooked(client: Client, books: Books, reserved: list[Plain]) -> list[str]:
    """A line for each excess: by our books, and by the worker's use plus its reservations."""
    reserved_on = _by_host(reserved)
    problems = [
        line for book in books for line in _excesses(f"books: {book.host}", book.use, book.limit)
    ]
    for host in _pages(lambda marker: client.list_hosts(marker=marker), "hosts"):
        use = use_of(host).plus(reserved_on.get(host["uuid"], NOTHING))
        problems += _excesses(f"worker: {host['host']}", use, limit_of(host))
    return problems


def _by_host(reserved: list[Plain]) -> dict[str, Amounts]:
    amounts: dict[str, Amounts] = {}
    for reservation in reserved:
        taken, host = reservation["resources"], reservation["host_uuid"]
        size = Amounts(
            taken.get("vcpus", 0), taken.get("memory_mb", 0), taken.get("disk_mb", 0) / 1024
        )
        amounts[host] = amounts.get(host, NOTHING).plus(size)
    return amounts


def _excesses(where: str, use: Amounts, limit: Amounts) -> list[str]:
    return [
        f"{where} has {getattr(use, name):,.10g} {name} used or reserved of {limit_:,.10g}"
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
