"""What commands share: a base class, output, questions on the terminal, the way to the workers."""

import argparse
import contextlib
import getpass
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cliff.command import Command

from scheduler_worker.errors import CallTimeout, ConfigError, NotServed
from scheduler_worker.wording import one_line

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.conf import Configuration
    from scheduler_worker.service.documents.audit import Actor

_TIMEOUT_S, _LONGEST_S = 10.0, 3600.0
_NOWHERE = (
    "Say where the workers are: --config-file FILE, --url rabbit://..., or the variable "
    "OS_DEFAULT__TRANSPORT_URL"
)


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
    """Print lines, in which names that others chose steer no terminal."""
    sys.stdout.writelines(f"{one_line(line)}\n" for line in lines)


def complain(*lines: str) -> None:
    """Print lines on the standard error, as :func:`say` does."""
    sys.stderr.writelines(f"{one_line(line)}\n" for line in lines)


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, of which the first has the names of the columns."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def confirmed(question: str) -> bool:
    """Ask on the terminal; without one the answer is no, and a message names ``--yes``."""
    sys.stdout.flush()  # the question is about what was printed
    question = one_line(question)
    if not sys.stdin.isatty():
        complain(f"{question} There is no terminal to ask on; pass --yes to do so.")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def actor(name: str | None) -> "Actor":
    """Who the audit names: by default the user of this system. Raises ConfigError without one."""
    from scheduler_worker.service.documents.audit import Actor

    try:
        user = name or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        raise ConfigError("This user has no name for the audit; give one, see --help") from None
    return Actor(user, f"command on {socket.gethostname()}")


# The workers


def add_config(parser: Any) -> None:
    """The options for the workers' configuration files."""
    parser.add_argument(
        *("--config-file", "--config"),
        dest="config_file",
        action="append",
        default=[],
        metavar="FILE",
        help="a configuration file of the workers, repeatable; default: their files",
    )
    parser.add_argument(
        "--config-dir",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="a directory whose *.conf files are read after them",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The options of a command that asks the workers."""
    group = parser.add_argument_group(
        "connection", "where the workers are; of their files only the bus is read"
    )
    add_config(group)
    group.add_argument("--url", metavar="URL", help="a transport_url instead, rabbit://...")
    group.add_argument("--topic", help="the workers' topic; default: theirs, [rpc] topic")
    group.add_argument(
        "--timeout",
        type=seconds,
        default=_TIMEOUT_S,
        metavar="SECONDS",
        help="how long an answer is waited for; default: %(default)g",
    )


def configuration_of(
    arguments: argparse.Namespace, *, prog: str = "scheduler-worker", more: Sequence[str] = ()
) -> "Configuration":
    """What the files and directories say that were given, and ``more`` files.

    Raises ConfigError for one that cannot be read.
    """
    from oslo_config import cfg

    from scheduler_worker import conf

    files = [f"--config-file={file}" for file in arguments.config_file]
    files += [f"--config-dir={directory}" for directory in arguments.config_dir]
    files += [f"--config-file={file}" for file in more]
    try:
        return conf.load(files, prog=prog)
    except (cfg.Error, OSError, ValueError) as error:
        raise ConfigError(str(error)) from None


@contextlib.contextmanager
def connected(arguments: argparse.Namespace) -> "Iterator[SchedulerClient]":
    """A client for as long as the block lasts.

    Raises:
        ConfigError: no bus is named, a file cannot be used, or no driver serves the URL.
        CallTimeout: a call in the block had no answer; says who was asked for how long.
        NotServed: another service answered; says where, and what to do.
    """
    from oslo_config import cfg

    from scheduler_worker.cli.asking import AskingClient
    from scheduler_worker.rpc.transport import Bus, is_named

    conf = configuration_of(arguments)
    try:
        if not is_named(conf) and not arguments.url:
            raise ConfigError(_NOWHERE)
        topic, exchange = arguments.topic or conf.rpc.topic, conf.rpc.exchange
        bus = Bus(conf, url=arguments.url, exchange=exchange)
    except (cfg.Error, OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    with bus:
        try:
            yield AskingClient(bus, topic=topic, timeout_s=arguments.timeout)
        except CallTimeout as error:
            raise CallTimeout(
                f"No answer within {arguments.timeout:g} s on topic {topic} at {bus.url} "
                f"({error}). Is a worker serving it? It is unknown whether the call had an effect"
            ) from None
        except NotServed as error:
            raise NotServed(
                f"What answers on topic {topic} at {bus.url} is no worker of this release: "
                f"nova-scheduler, another service, or an older worker ({error}). Start a worker "
                "and stop what is none, upgrade it, or name the workers' --topic"
            ) from None


def seconds(text: str) -> float:
    """An argument that is a duration. Raises ArgumentTypeError."""
    try:
        duration_s = float(text)
    except ValueError:
        duration_s = 0.0
    if not 0.0 < duration_s <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: write seconds above 0, at most {_LONGEST_S:g}")
    return duration_s
