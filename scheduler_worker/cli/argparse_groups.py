"""Groups of commands that are written for argparse, as commands of cliff.

Such a group is a module with ``add_to``, which adds parsers to what argparse calls subparsers; each
of them sets ``run``, a function of the parsed arguments that returns the exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from cliff.command import Command


class ArgparseCommand(Command):
    """A command that has its parser already."""

    parser: argparse.ArgumentParser
    brief: str

    def get_description(self) -> str:
        return self.brief

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        self.parser.prog = prog_name
        return self.parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        return int(parsed_args.run(parsed_args))


def commands_of(groups: Iterable[ModuleType]) -> dict[str, type[ArgparseCommand]]:
    """The commands of the groups, by name, such as ``tuning check``."""
    found: dict[str, type[ArgparseCommand]] = {}
    for group in groups:
        group.add_to(_Subparsers(found, ""))
    return found


class _Subparsers:
    """Stands for argparse's subparsers: what is added becomes a command."""

    def __init__(self, found: dict[str, type[ArgparseCommand]], prefix: str) -> None:
        self._found = found
        self._prefix = prefix

    def add_parser(self, name: str, *, help: str, **options: Any) -> argparse.ArgumentParser:
        name = f"{self._prefix}{name}"
        parser = _Parser(self._found, name, **options)
        self._found[name] = type(name, (ArgparseCommand,), {"parser": parser, "brief": help})
        return parser


class _Parser(argparse.ArgumentParser):
    """The parser of a command, or of a group of them."""

    def __init__(self, found: dict[str, type[ArgparseCommand]], name: str, **options: Any) -> None:
        super().__init__(**options)
        self._found = found
        self._name = name

    def add_subparsers(self, **_options: Any) -> Any:
        del self._found[self._name]  # it is no command itself
        return _Subparsers(self._found, f"{self._name} ")
