"""What the groups of commands share: parsers, questions on the terminal, who makes a change."""

from __future__ import annotations

import argparse
import getpass
import socket
import sys
from typing import Any

from scheduler_worker.errors import ConfigError
from scheduler_worker.service.policies.audit import Actor


def add_command(commands: Any, name: str, text: str, brief: str) -> argparse.ArgumentParser:
    """Add the parser of a command; ``text`` is its help as it stands, ``brief`` that in lists."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def confirmed(question: str) -> bool:
    """Ask on the terminal; without one the answer is no, and a message names ``--yes``."""
    if not sys.stdin.isatty():
        sys.stderr.write(f"{question} There is no terminal to ask on; pass --yes to do so.\n")
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def actor(name: str | None) -> Actor:
    """Who the audit names: by default the user of this system. Raises ConfigError without one."""
    try:
        user = name or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        raise ConfigError("This user has no name for the audit; give one, see --help") from None
    return Actor(user, f"command on {socket.gethostname()}")
