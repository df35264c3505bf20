"""``scheduler-workerctl``: one command for the fleet, and tools for authors of policies.

The commands that ask the workers are classes of cliff in ``cli/fleet``, which makes tables, JSON,
YAML and CSV of what they return. The groups in ``GROUPS`` are written for argparse.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Sequence
from itertools import takewhile

from cliff.app import App
from cliff.command import Command
from cliff.commandmanager import CommandManager

from scheduler_worker import __version__
from scheduler_worker.cli import (
    UNUSABLE,
    balance,
    bind,
    capacity,
    doctor,
    explain,
    fleet,
    rehearse,
    tuning,
)
from scheduler_worker.cli.argparse_groups import commands_of
from scheduler_worker.errors import (
    BackendError,
    ConfigError,
    SchedulerWorkerError,
    TuningPolicyError,
)
from scheduler_worker.monitoring import protect
from scheduler_worker.redaction import redacted

PROGRAM = "scheduler-workerctl"
GROUPS = (tuning, rehearse, doctor)
_LONGEST_LINE = 16_384
_SIGPIPE = 141
"""What cliff returns where the reader of the output has closed the pipe."""
REFUSED, UNREACHABLE = 1, 3
_DESCRIPTION = """\
One command for the fleet of workers, and tools for authors of policies.

  scheduler-workerctl worker list                          who serves, and how busy they are
  scheduler-workerctl host list --state down -f json
  scheduler-workerctl decision show 6f0b2c1e-...           why an instance has no host
  scheduler-workerctl policy edit east                     in $EDITOR
  scheduler-workerctl help policy edit

The commands of cluster, host, reservation, decision, policy, worker, balance, explain, capacity and
rehearse ask the workers over the bus; they need nothing but a configuration file of the workers, or
the URL of the bus. doctor looks at all that a worker needs, tuning reads files alone.
`scheduler-worker-manage` is for the SQL store of policies and users.
"""
_EPILOG = """\
exit status:
  0  done, and nothing is wrong
  1  refused: the workers say no, there is no such thing, a policy has issues, or a check of
     `doctor` failed
  2  wrong arguments, a configuration or a file that cannot be used
  3  no answer: the bus, or all workers, or the one asked for, or their shared state is away

completion for bash:
  source <(scheduler-workerctl complete)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, as :data:`_EPILOG` lists them.

    Raises:
        SystemExit: from the parser, with 2 on wrong arguments and 0 after ``--help``.
    """
    try:
        status = Ctl().run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        if status == _SIGPIPE:
            raise BrokenPipeError
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def commands() -> CommandManager:
    """All commands, by name."""
    manager = CommandManager()
    found: dict[str, type[Command]] = {
        **bind.commands(),
        **fleet.COMMANDS,
        **balance.COMMANDS,
        "explain": explain.Explain,
        "capacity": capacity.Capacity,
        **commands_of(GROUPS),
    }
    for name, command in found.items():
        manager.add_command(name, command)
    return manager


class Ctl(App):
    """The program."""

    NAME = PROGRAM

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        super().__init__(_DESCRIPTION, __version__, commands(), deferred_help=True)

    def build_option_parser(
        self,
        description: str | None,
        version: str | None,
        argparse_kwargs: object = None,
    ) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=PROGRAM,
            usage="%(prog)s [--debug] COMMAND [ARGUMENTS]",
            description=description,
            epilog=_EPILOG,
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
        """Libraries say nothing: what is wrong is in the error."""
        if self.options.debug:
            logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
            protect(_LONGEST_LINE)  # libraries log URLs with passwords

    def interact(self) -> None:
        self.parser.error("name a command; --help lists them")

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; its errors become a sentence and a status."""
        if argv[0] == "help":  # cliff's form of --help after other options
            argv = list(takewhile(lambda each: not each.startswith("-"), argv))
        if not self._is_known(argv):
            self.parser.error(self._unknown(argv))
        silenced = logging.root.manager.disable
        if not self.options.debug:
            logging.disable()
        try:
            status = super().run_subcommand(argv)
        finally:
            logging.disable(silenced)
        return status if self._failure is None else _report(self._failure)

    def clean_up(self, cmd: Command, result: int, err: BaseException | None) -> None:
        """Keep the error, which cliff logs, and forgets."""
        self._failure = err

    def _is_known(self, argv: list[str]) -> bool:
        """Whether it names a command, or help for one or for a group."""
        if argv[0] == "help":
            asked = " ".join(argv[1:])
            return any(
                f"{name} ".startswith(f"{asked} ".lstrip()) for name, _ in self.command_manager
            )
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            return False
        return True

    def _unknown(self, argv: Sequence[str]) -> str:
        words = [each for each in argv if not each.startswith("-") and each != "help"]
        given, names = " ".join(words[:2]), sorted(name for name, _ in self.command_manager)
        near = [each for each in names if words and each.startswith(f"{words[0]} ")]
        near = near or difflib.get_close_matches(given, names)
        return f"{given!r} is no command; " + (
            f"there are: {', '.join(near)}" if near else "--help lists them"
        )


def _report(error: BaseException) -> int:
    """Write the error as a sentence on stderr; returns the exit status that stands for it."""
    if isinstance(error, TuningPolicyError):
        sys.stderr.write(f"{error}\n")  # each issue begins with its place, for editors
        return REFUSED
    text = redacted(str(error))
    if not isinstance(error, SchedulerWorkerError):
        text = f"unexpected {type(error).__name__}: {text}; --debug shows where"
    sys.stderr.write(f"{PROGRAM}: {text}\n")
    if isinstance(error, ConfigError):
        return UNUSABLE
    return UNREACHABLE if isinstance(error, BackendError) else REFUSED
