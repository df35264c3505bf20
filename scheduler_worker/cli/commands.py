"""What commands share: a base class, options, output, questions on the terminal."""

import argparse
import getpass
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cliff.command import Command

from scheduler_worker.errors import ConfigError

if TYPE_CHECKING:
    from scheduler_worker.service.policies.audit import Actor


class PlainCommand(Command):
    """A command whose docstring is its help as it stands, its first line that in lists."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""


def add_author(parser: argparse.ArgumentParser, option: str = "--user") -> None:
    """The option ``author``, which :func:`actor` takes."""
    parser.add_argument(
        option,
        dest="author",
        metavar="NAME",
        help="who makes the change, for the audit; default: the user of this system",
    )


def say(*lines: str) -> None:
    """Print lines."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, of which the first has the names of the columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def confirmed(question: str) -> bool:
    """Ask on the terminal; without one the answer is no, and a message names ``--yes``."""
    sys.stdout.flush()  # the question is about what was printed
    if not sys.stdin.isatty():
        sys.stderr.write(f"{question} There is no terminal to ask on; pass --yes to do so.\n")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def actor(name: str | None) -> "Actor":
    """Who the audit names: by default the user of this system. Raises ConfigError without one."""
    from scheduler_worker.service.policies.audit import Actor

    try:
        user = name or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        raise ConfigError("This user has no name for the audit; give one, see --help") from None
    return Actor(user, f"command on {socket.gethostname()}")
