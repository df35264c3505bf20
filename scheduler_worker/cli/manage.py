"""``scheduler-worker-manage``: the policy store, its policies, and the users of the REST API.

A group of subcommands is a module with ``add_to``, listed in ``GROUPS``. Each subcommand sets
``run``: a function of the parsed arguments and the settings that returns the exit status.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from oslo_config import cfg

from scheduler_worker import conf as configuration
from scheduler_worker.cli import UNUSABLE, manage_db, manage_policy, manage_unit, manage_user
from scheduler_worker.conf import Settings
from scheduler_worker.errors import AdministrationError, SchedulerWorkerError
from scheduler_worker.redaction import redacted

PROGRAM = "scheduler-worker-manage"
GROUPS = (manage_db, manage_policy, manage_unit, manage_user)
REFUSED = 1
_DESCRIPTION = """\
Manage the policy store: the SQL database with the policies that administrators make. It reads the
worker's configuration files, of which [policy_store] connection names the database.

  scheduler-worker-manage db upgrade                    make the tables, or bring them up to date
  scheduler-worker-manage policy export > policies.yaml
  scheduler-worker-manage policy import policies.yaml   show what would change, ask, change it
  scheduler-worker-manage unit enable NAME              let policies use a unit from a file
  scheduler-worker-manage user add NAME --role ROLE     add a user of the REST API
"""
_EPILOG = """\
exit status:
  0  done, or there was nothing to do
  1  refused: a policy is invalid, was changed meanwhile, or the question was answered with no
  2  wrong arguments or configuration, or the database or the shared state cannot be reached
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, as :data:`_EPILOG` lists them.

    Raises:
        SystemExit: from the parser, with 2 on wrong arguments and 0 after ``--help``.
    """
    try:
        parsed = parser().parse_args(arguments)
        status = int(parsed.run(parsed, _settings(parsed)))
        sys.stdout.flush()
    except AdministrationError as error:
        return _failed(error, REFUSED)
    except (SchedulerWorkerError, cfg.Error, ValueError) as error:
        return _failed(error, UNUSABLE)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def parser() -> argparse.ArgumentParser:
    """The parser of all groups."""
    found = argparse.ArgumentParser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help="a configuration file of the worker; default: those that a worker reads",
    )
    found.add_argument(
        "--config-dir",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="a directory whose *.conf files are read after them",
    )
    groups = found.add_subparsers(required=True, metavar="GROUP", title="groups")
    for group in GROUPS:
        group.add_to(groups)
    return found


def _settings(parsed: argparse.Namespace) -> Settings:
    files = [text for each in parsed.config_file for text in ("--config-file", each)]
    folders = [text for each in parsed.config_dir for text in ("--config-dir", each)]
    return configuration.settings(configuration.load([*files, *folders], prog=PROGRAM))


def _failed(error: Exception, status: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {redacted(str(error))}\n")
    return status
