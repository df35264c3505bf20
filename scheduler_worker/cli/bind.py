"""Operations on the command line: each is a command, with a table or the fields of its answer.

Arguments are its parameters: required parameters by position, the others as options.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from scheduler_worker.cli.commands import PlainCommand, complain, say
from scheduler_worker.cli.progress import counted
from scheduler_worker.errors import ConfigError, NotFound
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.forms import choices, description, from_text, is_document, is_time
from scheduler_worker.operations.operation import Column, Operation, Page, PageQuery
from scheduler_worker.wording import duration, one_line

if TYPE_CHECKING:
    from scheduler_worker.cli.program import CommandProgram
    from scheduler_worker.client import OperationsClient

PAGE = 1000
"""Rows that are asked for at a time."""
_LENGTHS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_ESCAPING = frozenset({"table", "json", "yaml"})
"""The formats whose cells, or which themselves, escape what steers a terminal."""
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""With one of these a spreadsheet takes a text for a formula; the others it ignores before one."""
_TIME = "how long ago (30m, 2h, 7d), or such as 2026-01-31T12:00"


class FleetCommand(PlainCommand):
    """A command that asks whom its program knows; its docstring is its help."""

    app: CommandProgram
    is_change: ClassVar[bool] = False
    """Whether it changes policies or units."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        self.app.add_connection(parser, self)
        return parser

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        """The names or ids of the units of files that it needs in this process; None: all."""
        return ()

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        with self.app.connected(self, parsed_args) as client:
            return self.ask(client, parsed_args)

    def ask(self, client: Any, arguments: argparse.Namespace) -> Any:
        """Do it; returns what ``take_action`` of the class returns."""
        raise NotImplementedError


class _Bound(FleetCommand):
    """A command of one operation."""

    operation: Operation[Any, Any]

    def get_description(self) -> str:
        return self.operation.text

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for field in self.operation.fields:
            if field.name not in PageQuery.__struct_fields__:
                self._add(parser, field)
        if issubclass(self.operation.parameters, PageQuery):
            most = self.operation.most
            text = f"at most so many; default: {'all of them' if most is None else most}"
            parser.add_argument("--limit", type=count, default=most, metavar="N", help=text)
            parser.add_argument("--marker", help="begin where the end of a page before says")
        if self.operation.long:
            parser.add_argument("--long", action="store_true", help="more columns")

    def _add(self, parser: argparse.ArgumentParser, field: msgspec.structs.FieldInfo) -> None:
        text = description(field).rstrip(".")
        text = text[:1].lower() + text[1:]
        details: dict[str, Any] = {"help": text, "type": lambda value: from_text(field.type, value)}
        if allowed := choices(field.type):
            details["choices"] = allowed
        elif is_time(field.type):
            details |= {"type": moment, "metavar": "TIME", "help": f"{text}: {_TIME}"}
        elif is_document(field):
            details |= {"type": document, "metavar": "FILE", "help": f"{text}; `-`: the input"}
        if field.required:
            details.setdefault("metavar", field.name.upper())
            if self.operation.done:
                details["nargs"] = "+"
            parser.add_argument(field.name, **details)
        else:
            parser.add_argument(f"--{field.name.replace('_', '-')}", **details)

    def parameters(self, arguments: argparse.Namespace, **named: Any) -> Any:
        """The operation's, of the arguments, and of those by name."""
        names = (field.name for field in self.operation.fields)
        values = {name: getattr(arguments, name) for name in names} | named
        given = {name: value for name, value in values.items() if value is not None}
        return self.operation.parameters(**given)


class _OfColumns(FleetCommand):
    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Raises ConfigError for a column that is not there, which cliff would ignore or show."""
        known, data = super().take_action(parsed_args)
        names = {name.lower().replace(" ", "_") for name in known}
        for column in (*parsed_args.columns, *getattr(parsed_args, "sort_columns", ())):
            if column.lower().strip().replace(" ", "_") not in names:  # as cliff spells them
                raise ConfigError(f"There is no column {column!r}; choose of: {', '.join(known)}")
        return known, data


class FleetLister(_OfColumns, Lister):
    """A command that prints a table."""

    def produce_output(self, parsed_args: argparse.Namespace, names: Any, data: Any) -> int:
        rows = [_shown(row, parsed_args.formatter) for row in data]
        return super().produce_output(parsed_args, names, rows)


class FleetShow(_OfColumns, ShowOne):
    """A command that prints the fields of one thing."""

    def produce_output(self, parsed_args: argparse.Namespace, names: Any, data: Any) -> int:
        return super().produce_output(parsed_args, names, _shown(data, parsed_args.formatter))


class _List(_Bound, FleetLister):
    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> Any:
        columns = self.operation.columns or _all_fields(self.operation.answer.__args__[0])
        if getattr(arguments, "long", False):
            columns = {**columns, **self.operation.long}
        items = counted(self._items(client, arguments), f"reading with {self.operation.name}")
        rows = [_row(columns, item) for item in items]
        return tuple(columns), rows

    def _items(self, client: OperationsClient, arguments: argparse.Namespace) -> Iterator[Any]:
        """The items that ``--marker`` and ``--limit`` ask for; says on stderr if there are more."""
        if not issubclass(self.operation.parameters, PageQuery):
            yield from client.call(self.operation, self.operation.parameters()).items
            return
        marker, remaining = arguments.marker, arguments.limit
        while remaining is None or remaining > 0:
            limit = PAGE if remaining is None else min(remaining, PAGE)
            query = self.parameters(arguments, marker=marker, limit=limit)
            page: Page[Any] = client.call(self.operation, query)
            yield from page.items
            marker = page.next
            if marker is None:
                return
            if remaining is not None:
                remaining -= len(page.items)
        complain(f"There are more: --marker {marker}")


class _Show(_Bound, FleetShow):
    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> Any:
        answer = client.call(self.operation, self.parameters(arguments))
        columns = self.operation.columns or _all_fields(type(answer))
        return tuple(columns), _row(columns, answer)


class _Do(_Bound):
    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        if not self.operation.done:
            client.call(self.operation, self.parameters(arguments))
            return 0
        [field] = self.operation.fields
        missing: NotFound | None = None
        for name in dict.fromkeys(getattr(arguments, field.name)):
            parameters = self.operation.parameters(**{field.name: name})
            try:
                answer = client.call(self.operation, parameters)
            except NotFound as error:
                missing = error
                complain(str(error))
            else:
                say(self.operation.done.format(name, answer))
        if missing is not None:
            raise missing
        return 0


def commands() -> dict[str, type[Command]]:
    """The command of each operation that has one, by name."""
    made: dict[str, type[Command]] = {}
    for operation in OPERATIONS:
        if operation.command is not None:
            base: type[_Bound] = _List if operation.is_list else _Show
            if operation.answer is None or operation.done:
                base = _Do
            fields = {"operation": operation, "is_change": operation.is_change}
            made[operation.command] = type(operation.name, (base,), fields)
    return made


def _all_fields(kind: type[msgspec.Struct]) -> dict[str, Column]:
    return {name: name for name in kind.__struct_fields__}


# Cells


def _row(columns: Mapping[str, Column], item: Any) -> tuple[Any, ...]:
    return tuple(_cell(item, column) for column in columns.values())


def _cell(item: Any, column: Column) -> Any:
    if isinstance(column, str):
        value = _field(item, column.split("."))
        is_duration = column.endswith("_s") and isinstance(value, float | int | None)
        return Seconds(value) if is_duration else cell(value)
    how, path = column
    value = _field(item, path.split("."))
    if value is None:
        return Seconds(None)
    age_s = (datetime.now(UTC) - value).total_seconds()
    return Seconds(max(0.0, round(age_s if how == "age" else -age_s, 1)))


def _field(value: Any, path: Sequence[str]) -> Any:
    """The field at a path. For a list, the fields of its items; None behind None."""
    if not path or value is None:
        return value
    if isinstance(value, list):
        return [_field(item, path) for item in value]
    name, *rest = path
    return _field(value.get(name) if isinstance(value, dict) else getattr(value, name), rest)


def _shown(row: Sequence[Any], form: str) -> tuple[Any, ...]:
    """A row for one of cliff's formats: names that others chose steer nothing that shows them."""
    cells = (Optional(each) if isinstance(each, str) else each for each in row)
    if form in _ESCAPING:
        return tuple(cells)
    return tuple(
        Optional(_safe(each.machine_readable(), form))
        if isinstance(each, FormattableColumn)
        else each
        for each in cells
    )


def _safe(value: Any, form: str) -> Any:
    """A plain value: escaped, in CSV no formula of a spreadsheet, and no command of a shell."""
    if form == "shell":
        return re.sub(r"[\\$`]", r"\\\g<0>", one_line(str(value)))
    if not isinstance(value, str):
        return value
    return one_line(f"'{value}" if form == "csv" and value.startswith(_FORMULAS) else value)


def cell(value: Any) -> Any:
    """A value for a table: made for people there, and plain for programs."""
    if isinstance(value, datetime):
        return Time(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ListColumn(value)
    if isinstance(value, msgspec.Struct | list | dict):
        return Document(value)
    return Optional(value)


class ListColumn(FormattableColumn[list[str]]):
    """A list of texts: with commas for people, a list for programs."""

    def human_readable(self) -> str:
        return one_line(", ".join(self._value)) or "-"


class Optional(FormattableColumn[Any]):
    """A value that may be absent: ``-`` for people."""

    def human_readable(self) -> str:
        return "-" if self._value is None else one_line(str(self._value))


class Seconds(FormattableColumn[float | None]):
    """A duration: in its two largest units for people, seconds for programs."""

    def human_readable(self) -> str:
        return "-" if self._value is None else duration(self._value)


class Time(FormattableColumn[Any]):
    """A time, in UTC."""

    def human_readable(self) -> str:
        return str(self._value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ"))

    def machine_readable(self) -> str:
        return str(self._value.isoformat())


class Document(FormattableColumn[Any]):
    """A document: as its types say it, else YAML for people; as it is for programs."""

    def human_readable(self) -> str:
        items = self._value if isinstance(self._value, list) else [self._value]
        if all("__str__" in vars(type(item)) for item in items):
            return "\n".join(one_line(str(item)) for item in items) or "-"
        import yaml

        text: str = yaml.safe_dump(
            self.machine_readable(), sort_keys=False, default_flow_style=None, width=100
        )
        return text.rstrip()

    def machine_readable(self) -> Any:
        return msgspec.to_builtins(self._value)


def json_of(answer: object, indent: int | None = 2) -> str:
    """An answer for programs, in ASCII: whatever it names steers no terminal."""
    plain = json.loads(msgspec.json.encode(answer))
    return json.dumps(plain, indent=indent).replace("\x7f", r"\u007f") + "\n"


# Arguments


def document(path: str) -> str:
    """An argument that is a file's text, or that of the standard input."""
    from scheduler_worker.cli.files import read_text  # YAML is slow to import

    try:
        return read_text(Path(path))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment(text: str) -> datetime:
    """An argument that is a time. Raises ArgumentTypeError."""
    ago = re.fullmatch(r"(\d{1,9})\s*(\w+)", text)
    try:
        if ago and ago[2] in _LENGTHS_S:
            return datetime.fromtimestamp(time.time() - int(ago[1]) * _LENGTHS_S[ago[2]], UTC)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write how long ago, such as 30m, 2h or 7d, or a time, such as "
            "2026-01-31T12:00 (of this machine's zone) or 2026-01-31T12:00Z"
        ) from None


def count(text: str) -> int:
    """An argument that is a number above 0. Raises ArgumentTypeError."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number above 0")
    return int(text)
