"""``scheduler-workerctl``: tools for operators and for authors of policies.

A group of subcommands is a module with ``add_to``, listed in ``GROUPS``. Each subcommand sets
``run``: a function of the parsed arguments that returns the exit status.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scheduler_worker.cli import balance, capacity, doctor, explain, tuning
from scheduler_worker.errors import SchedulerWorkerError, TuningPolicyError

GROUPS = (tuning, balance, explain, capacity, doctor)
_EPILOG = """\
exit status:
  0  done, and nothing is wrong
  1  a policy has issues, or a check of `doctor` failed; all of them are printed
  2  wrong arguments, a file that cannot be used, or no answer of a worker; one sentence says which
     and why
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, as :data:`_EPILOG` lists them.

    Raises:
        SystemExit: from the parser, with 2 on wrong arguments and 0 after ``--help``.
    """
    try:
        parsed = parser().parse_args(arguments)
        status = int(parsed.run(parsed))
        sys.stdout.flush()
    except TuningPolicyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except SchedulerWorkerError as error:
        sys.stderr.write(f"scheduler-workerctl: {error}\n")
        return 2
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def parser() -> argparse.ArgumentParser:
    """The parser of all groups."""
    found = argparse.ArgumentParser(
        prog="scheduler-workerctl",
        description="Tools for scheduler_worker. Those of `tuning` need no running worker.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = found.add_subparsers(required=True, metavar="GROUP", title="groups")
    for group in GROUPS:
        group.add_to(groups)
    return found
