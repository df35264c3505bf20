"""How commands reach the workers: options for a configuration, a URL, a topic and a timeout."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scheduler_worker.errors import CallTimeout, ConfigError, NotServed

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.conf import Configuration

TIMEOUT_S, LONGEST_S = 10.0, 3600.0
_NOWHERE = (
    "Say where the workers are: --config-file FILE, --url rabbit://..., or the variable "
    "OS_DEFAULT__TRANSPORT_URL"
)


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
        default=TIMEOUT_S,
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

    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.rpc.transport import Bus, register_opts

    conf = configuration_of(arguments)
    try:
        register_opts(conf)
        if not arguments.url and conf.get_location("transport_url").location.name in _UNSET:
            raise ConfigError(_NOWHERE)
        topic, exchange = arguments.topic or conf.rpc.topic, conf.rpc.exchange
        bus = Bus(conf, url=arguments.url, exchange=exchange)
    except (cfg.Error, OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    with bus:
        try:
            yield SchedulerClient(bus, topic=topic, timeout_s=arguments.timeout)
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


_UNSET = {"opt_default", "set_default"}


def seconds(text: str) -> float:
    """An argument that is a duration. Raises ArgumentTypeError."""
    try:
        duration_s = float(text)
    except ValueError:
        duration_s = 0.0
    if not 0.0 < duration_s <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: write seconds above 0, at most {LONGEST_S:g}")
    return duration_s
