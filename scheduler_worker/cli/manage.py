"""``scheduler-worker-manage``: policies, units and the audit without a worker; tables, and users.

Its commands serve themselves: on the shared state, which has the policies, and on its archive.
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from scheduler_worker.cli import UNUSABLE, book
from scheduler_worker.cli.commands import (
    PlainCommand,
    actor,
    add_author,
    add_config,
    configuration_of,
)
from scheduler_worker.cli.program import REFUSED, CommandProgram
from scheduler_worker.errors import BackendError, ConfigError, SchedulerWorkerError

if TYPE_CHECKING:
    from scheduler_worker.cli.bind import FleetCommand
    from scheduler_worker.client import OperationsClient
    from scheduler_worker.conf import Settings


class Manage(CommandProgram):
    """The program."""

    NAME = "scheduler-worker-manage"
    DESCRIPTION = """\
Manage policies, units from files and the audit where no worker need run, and the users of the REST
API. It reads the worker's configuration files. Policies are in the shared state, [state] url; their
archive is the SQL database that [policy_store] connection names: a copy, and the whole history.

  scheduler-worker-manage db upgrade                    make the archive's tables, or upgrade them
  scheduler-worker-manage policy export > policies.yaml
  scheduler-worker-manage policy import policies.yaml   show what would change, ask, change it
  scheduler-worker-manage policy attach packing east    let a cluster decide under a policy
  scheduler-worker-manage policy history packing        who changed and attached it, and when
  scheduler-worker-manage audit list --since 7d         who did what
  scheduler-worker-manage unit enable NAME              let policies use a unit from a file
  scheduler-worker-manage user add NAME --role ROLE     add a user of the REST API

`scheduler-workerctl` has the same commands of policy, unit and audit, and asks the workers.
"""
    EPILOG = """\
exit status:
  0  done, or there was nothing to do
  1  refused: a policy is invalid, was changed meanwhile, there is no such thing, or the question
     was answered with no
  2  wrong arguments or configuration, or the archive or the shared state cannot be reached
"""
    COMMANDS: ClassVar = {
        **book.COMMANDS,
        "db upgrade": "manage_db:Upgrade",
        "db downgrade": "manage_db:Downgrade",
        "db version": "manage_db:ShowVersion",
        "db restore": "manage_db:Restore",
        "policy import-ovirt": "manage_policy:ImportOvirt",
        "user add": "manage_user:AddUser",
        "user remove": "manage_user:RemoveUser",
        "user list": "manage_user:ListUsers",
    }
    STATUSES: ClassVar = {
        ConfigError: UNUSABLE,
        BackendError: UNUSABLE,
        SchedulerWorkerError: REFUSED,
        ValueError: UNUSABLE,
    }
    SILENCED = logging.INFO  # a warning names a file of units that is left out, and why

    def __init__(self) -> None:
        super().__init__()
        from scheduler_worker.cli import bind

        made = bind.commands()
        for name in book.OF_OPERATIONS:
            self.command_manager.add_command(name, made[name])

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(description, version)
        add_config(parser)
        return parser

    def settings(self) -> "Settings":
        """The settings of the files that were named before the command. Raises ConfigError."""
        from scheduler_worker import conf

        return conf.settings(configuration_of(self.options, prog=Manage.NAME))

    def add_connection(self, parser: argparse.ArgumentParser, command: "FleetCommand") -> None:
        """Who makes a change; the program's own options say where the state is."""
        if command.is_change:
            add_author(parser)

    @contextmanager
    def connected(
        self, command: "FleetCommand", arguments: argparse.Namespace
    ) -> "Iterator[OperationsClient]":
        """A client that this process serves. Raises as :func:`.local_client.opened` does."""
        from scheduler_worker.cli.local_client import LocalClient, opened
        from scheduler_worker.service.documents.audit import Actor

        who = actor(arguments.author) if command.is_change else Actor("")
        units = command.units(arguments)
        with opened(self.settings(), units, is_change=command.is_change) as parts:
            yield LocalClient(parts.services, who)


main = Manage.main


class ManageCommand(PlainCommand):
    """A command of this program alone."""

    app: Manage

    def settings(self) -> "Settings":
        """As :meth:`Manage.settings`."""
        return self.app.settings()
