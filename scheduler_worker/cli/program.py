"""What ``scheduler-workerctl`` and ``scheduler-worker-manage`` are: programs of cliff.

A program names its commands in a table. Their modules are imported when they are needed, so that
``--help`` is quick.
"""

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

import cliff.command
from cliff.app import App
from cliff.commandmanager import CommandManager

from scheduler_worker import __version__
from scheduler_worker.cli.commands import complain
from scheduler_worker.cli.progress import ProgressReport
from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.redaction import redacted

if TYPE_CHECKING:
    from scheduler_worker.cli.bind import FleetCommand

# cliff reads all that is installed to say which distribution a command is of: all are of ours.
cliff.command._dists_by_mods = {}  # type: ignore[assignment]

REFUSED = 1
_COMPLETION = """\
completion for bash:
  source <({} complete)
"""
_LONGEST_LINE = 16_384
_SIGPIPE = 141
"""What cliff returns where the reader of the output has closed the pipe."""


class CommandProgram(App):
    """A program of commands; its subclass says which, and what their errors mean."""

    DESCRIPTION: ClassVar[str]
    EPILOG: ClassVar[str]
    COMMANDS: ClassVar[Mapping[str, str]]
    """Name -> module in this package and class in it, such as ``manage_db:Upgrade``."""
    STATUSES: ClassVar[Mapping[type[Exception], int]]
    """The exit statuses of expected errors; of the classes that an error has the first counts."""
    SILENCED: ClassVar[int] = logging.CRITICAL
    """The level up to which nothing is logged without ``--debug``."""
    LOG = logging.getLogger("cliff")

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        commands = CommandManager()
        for name, place in self.COMMANDS.items():
            commands.commands[name] = EntryPoint(name, f"{__package__}.{place}", self.NAME)
        super().__init__(self.DESCRIPTION, __version__, commands, deferred_help=True)

    @classmethod
    def main(cls, arguments: Sequence[str] | None = None) -> int:
        """Run a command with these arguments, by default the process's; returns its exit status.

        Raises SystemExit: from the parser, with 2 on wrong arguments and 0 after ``--help``.
        """
        try:
            status = cls().run(list(sys.argv[1:] if arguments is None else arguments))
            sys.stdout.flush()
        except BrokenPipeError:
            status = _SIGPIPE
        if status == _SIGPIPE:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return status

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=self.NAME,
            usage="%(prog)s [OPTIONS] COMMAND [ARGUMENTS]",
            description=description,
            epilog=f"{self.EPILOG}\n{_COMPLETION.format(self.NAME)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
        parser.add_argument(
            *("-h", "--help"),
            dest="deferred_help",
            action="store_true",
            help="this help, or that of the command",
        )
        parser.add_argument(
            "--debug", action="store_true", help="show the traceback of an error, and the log"
        )
        return parser

    def configure_logging(self) -> None:
        self.LOG.disabled = not self.options.debug  # cliff logs errors, which are reported here
        if self.options.debug:
            from scheduler_worker.monitoring import protect

            logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
            protect(_LONGEST_LINE)  # libraries log URLs with passwords

    def add_connection(self, parser: argparse.ArgumentParser, command: "FleetCommand") -> None:
        """Add the options that say whom a command asks."""
        raise NotImplementedError

    def connected(
        self, command: "FleetCommand", arguments: argparse.Namespace
    ) -> AbstractContextManager[Any]:
        """The client of a command, for as long as the block lasts."""
        raise NotImplementedError

    def interact(self) -> None:
        self.parser.error("name a command; --help lists them")

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; its errors become a sentence and a status."""
        is_help = argv[0] == "help"  # cliff's form of --help after other options, too
        argv = self._command_first(argv[is_help:])
        if is_help:
            argv = ["help", *takewhile(lambda word: not word.startswith("-"), argv)]
        if not self._is_known(argv):
            self.parser.error(self._unknown(argv))
        silenced = logging.root.manager.disable
        if not self.options.debug:
            logging.disable(self.SILENCED)
        try:
            with ProgressReport().shown():
                status = super().run_subcommand(argv)
        finally:
            logging.disable(silenced)
        return status if self._failure is None else self._report(self._failure)

    def clean_up(self, cmd: Any, result: int, err: BaseException | None) -> None:
        """Keep the error, which cliff logs, and forgets."""
        self._failure = err

    def _command_first(self, argv: list[str]) -> list[str]:
        """The words with what stands before the command after it: options are the command's."""
        at = next((at for at in range(len(argv)) if self._is_known(argv[at:])), 0)
        if not at or not argv[0].startswith("-"):
            return argv
        _, name, rest = self.command_manager.find_command(argv[at:])
        return [*name.split(), *argv[:at], *rest]

    def _is_known(self, argv: list[str]) -> bool:
        """Whether it names a command, or help for one or for a group."""
        if argv[0] == "help":
            asked = f"{' '.join(argv[1:])} ".lstrip()
            return any(f"{name} ".startswith(asked) for name, _ in self.command_manager)
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            return False
        return True

    def _unknown(self, argv: Sequence[str]) -> str:
        words = [word for word in argv if not word.startswith("-") and word != "help"]
        asked, names = " ".join(words[:2]), sorted(name for name, _ in self.command_manager)
        near = [name for name in names if words and name.startswith(f"{words[0]} ")]
        near = near or difflib.get_close_matches(asked, names)
        hint = f"there are: {', '.join(near)}" if near else "--help lists them"
        return f"{asked!r} is no command; {hint}"

    def _report(self, error: BaseException) -> int:
        """Write the error as a sentence on stderr; returns the exit status that stands for it."""
        if isinstance(error, TuningPolicyError):
            complain(*str(error).split("\n"))  # each issue begins with its place, for editors
            return REFUSED
        text = redacted(str(error))
        statuses = (status for kind, status in self.STATUSES.items() if isinstance(error, kind))
        if (status := next(statuses, None)) is None:
            status = REFUSED
            text = f"unexpected {type(error).__name__}: {text}; --debug shows where"
        complain(*f"{self.NAME}: {text}".split("\n"))
        return status
