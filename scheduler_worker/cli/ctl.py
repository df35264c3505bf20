"""``scheduler-workerctl``: tools for operators and for authors of policies.

A group of subcommands is a module with ``add_to``, listed in ``GROUPS``. Each subcommand sets
``run``: a function of the parsed arguments that answers the exit status.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scheduler_worker.cli import tuning
from scheduler_worker.errors import PolicyError, SchedulerWorkerError

GROUPS = (tuning,)
_EPILOG = """\
exit status:
  0  done, and nothing is wrong
  1  a policy has issues; all of them are printed
  2  wrong arguments, or a file that cannot be used; one sentence says which and why
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status: 0 done, 1 a policy has issues, 2 it cannot be done.

    Raises:
        SystemExit: from the parser, with 2 on wrong arguments and 0 after ``--help``.
    """
    try:
        told = parser().parse_args(arguments)
        status = int(told.run(told))
        sys.stdout.flush()
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except SchedulerWorkerError as error:
        sys.stderr.write(f"scheduler-workerctl: {error}\n")
        return 2
    except BrokenPipeError:  # who reads has enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def parser() -> argparse.ArgumentParser:
    """The parser of all groups."""
    found = argparse.ArgumentParser(
        prog="scheduler-workerctl",
        description="Tools for scheduler_worker. None of them needs a worker that runs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = found.add_subparsers(required=True, metavar="GROUP", title="groups")
    for group in GROUPS:
        group.add_to(groups)
    return found
