"""What the commands of the fleet share: the connection, tables, pages, and values in columns."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from scheduler_worker.cli.connection import add_connection, connected
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import ConfigError, NotFound

Row = dict[str, Any]
Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
T = TypeVar("T")

PAGE = 1000
"""Rows that are asked for at a time."""


class FleetCommand(Command):
    """A command that asks the workers; its docstring is its help."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        self.add_arguments(parser)
        add_connection(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        with connected(parsed_args) as client:
            return self.ask(client, parsed_args)

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Any:
        """Do it; returns what ``take_action`` of the class returns."""
        raise NotImplementedError


class FleetLister(FleetCommand, Lister):
    """A command that prints a table."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read all rows while there is a connection: some are asked for page by page."""
        with connected(parsed_args) as client:
            names, rows = self.ask(client, parsed_args)
            return names, list(rows)

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any
    ) -> int:
        """Raises ConfigError for a column that is not there, which cliff would ignore or show."""
        check_columns(column_names, [*parsed_args.columns, *parsed_args.sort_columns])
        return super().produce_output(parsed_args, column_names, data)


class FleetShow(FleetCommand, ShowOne):
    """A command that prints the fields of one thing."""

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any
    ) -> int:
        """Raises ConfigError for a column that is not there."""
        check_columns(column_names, parsed_args.columns)
        return super().produce_output(parsed_args, column_names, data)


def check_columns(known: Sequence[str], wanted: Iterable[str]) -> None:
    """Raises ConfigError for the first one that is not known, in whatever spelling cliff takes."""
    names = {each.lower().replace(" ", "_") for each in known}
    for each in wanted:
        if each.lower().strip().replace(" ", "_") not in names:
            raise ConfigError(f"There is no column {each!r}; choose of: {', '.join(known)}")


class Listed(FormattableColumn[list[str]]):
    """A list of texts: with commas for people, a list for programs."""

    def human_readable(self) -> str:
        return ", ".join(self._value) or "-"


class Optional(FormattableColumn[Any]):
    """A value that may be absent: ``-`` for people."""

    def human_readable(self) -> str:
        return "-" if self._value is None else str(self._value)


class Seconds(FormattableColumn[float | None]):
    """A duration: in its two largest units for people, seconds for programs."""

    def human_readable(self) -> str:
        return "-" if self._value is None else duration(self._value)


class Texts(FormattableColumn[Any], Generic[T]):
    """A document: YAML for people, as it is for programs."""

    def human_readable(self) -> str:
        import yaml

        text: str = yaml.safe_dump(self._value, sort_keys=False, default_flow_style=None, width=100)
        return text.rstrip()


def duration(seconds: float) -> str:
    """Such as ``42 s``, ``3 min 5 s``, ``2 d 4 h``; less than 10 s with a decimal."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def add_paging(parser: argparse.ArgumentParser, what: str) -> None:
    """The options of a command that lists pages; ``what`` the marker is, such as ``a uuid``."""
    parser.add_argument(
        "--limit", type=_count, metavar="N", help="at most so many; default: all of them"
    )
    parser.add_argument(
        "--marker", help=f"begin after this one, {what}, as the end of a page before says"
    )


def pages(
    page: Callable[[str | None, int], Row], name: str, arguments: argparse.Namespace
) -> Iterator[Row]:
    """The rows that ``--marker`` and ``--limit`` ask for; says on stderr where there are more.

    ``page`` returns one page after a marker, of at most so many rows.
    """
    marker, left = arguments.marker, arguments.limit
    while left is None or left > 0:
        answer = page(marker, PAGE if left is None else min(left, PAGE))
        yield from answer[name]
        marker = answer["next"]
        if marker is None:
            return
        if left is not None:
            left -= len(answer[name])
    sys.stderr.write(f"There are more: --marker {marker}\n")


def the_one(what: str, name: str, found: Sequence[T]) -> T:
    """The only one found. Raises NotFound."""
    if not found:
        raise NotFound(what, name)
    return found[0]


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number above 0")
    return int(text)
