"""Checks for overbooked hosts, by the books and by the worker's use and reservations."""

from collections.abc import Callable, Iterator

from replay.books import RESOURCES, Amounts, Books
from replay.driver import Client
from replay.streams import Plain

ROUNDING = 1e-6


def reservations(client: Client) -> list[Plain]:
    """All reservations of the worker."""
    return list(_pages(lambda marker: client.list_reservations(marker=marker), "reservations"))


def overbooked(client: Client, books: Books) -> list[str]:
    """A line for each excess: by our books, and by the worker's use plus its reservations."""
    problems = [
        line for book in books for line in _excesses(f"books: {book.host}", book.use, book.limit)
    ]
    for host in _pages(lambda marker: client.list_hosts(marker=marker), "hosts"):
        use = _amounts(host, "used").plus(_amounts(host, "reserved"))
        problems += _excesses(f"worker: {host['name']}", use, _amounts(host, "limit"))
    return problems


def _amounts(host: Plain, what: str) -> Amounts:
    vcpus, memory_mb, disk_mb = (host[each][what] for each in ("vcpus", "memory_mb", "disk_mb"))
    return Amounts(vcpus, memory_mb, disk_mb / 1024)


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
