"""``scheduler-worker-manage``: the policy store, its policies and audit, and users of REST."""

import argparse
import logging
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar

from scheduler_worker.cli import UNUSABLE
from scheduler_worker.cli.commands import PlainCommand, add_config, configuration_of
from scheduler_worker.cli.program import REFUSED, CommandProgram
from scheduler_worker.cli.progress import doing
from scheduler_worker.errors import AdministrationError, SchedulerWorkerError

if TYPE_CHECKING:
    from scheduler_worker.cli.store_client import StoreClient
    from scheduler_worker.conf import Settings
    from scheduler_worker.service.policies.administration import PolicyAdministration


class Manage(CommandProgram):
    """The program."""

    NAME = "scheduler-worker-manage"
    DESCRIPTION = """\
Manage the policy store: the SQL database with the policies that administrators make. It reads the
worker's configuration files, of which [policy_store] connection names the database.

  scheduler-worker-manage db upgrade                    make the tables, or bring them up to date
  scheduler-worker-manage policy export > policies.yaml
  scheduler-worker-manage policy import policies.yaml   show what would change, ask, change it
  scheduler-worker-manage policy history NAME           who changed and attached it, and when
  scheduler-worker-manage audit list --since 7d         who did what
  scheduler-worker-manage unit enable NAME              let policies use a unit from a file
  scheduler-worker-manage user add NAME --role ROLE     add a user of the REST API
"""
    EPILOG = """\
exit status:
  0  done, or there was nothing to do
  1  refused: a policy is invalid, was changed meanwhile, or the question was answered with no
  2  wrong arguments or configuration, or the database or the shared state cannot be reached
"""
    COMMANDS: ClassVar = {
        "db upgrade": "manage_db:Upgrade",
        "db downgrade": "manage_db:Downgrade",
        "db version": "manage_db:ShowVersion",
        "policy list": "manage_policy:ListStored",
        "policy export": "manage_policy:ExportStored",
        "policy import": "manage_policy:ImportStored",
        "policy import-ovirt": "manage_policy:ImportOvirt",
        "unit list": "manage_policy:ListUnits",
        "unit enable": "manage_policy:EnableUnit",
        "unit disable": "manage_policy:DisableUnit",
        "user add": "manage_user:AddUser",
        "user remove": "manage_user:RemoveUser",
        "user list": "manage_user:ListUsers",
    }
    STATUSES: ClassVar = {
        AdministrationError: REFUSED,
        SchedulerWorkerError: UNUSABLE,
        ValueError: UNUSABLE,
    }
    SILENCED = logging.INFO  # a warning names a file of units that is left out, and why

    def __init__(self) -> None:
        super().__init__()
        from scheduler_worker.cli import bind

        for name, command in bind.commands(StoreCommand).items():
            self.command_manager.add_command(name, command)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(description, version)
        add_config(parser)
        return parser


main = Manage.main


class ManageCommand(PlainCommand):
    """A command of the program."""

    def settings(self) -> "Settings":
        """The settings of the files that were named before the command. Raises ConfigError."""
        from scheduler_worker import conf

        return conf.settings(configuration_of(self.app.options, prog=Manage.NAME))

    @contextmanager
    def administration(
        self, units: Collection[str] | None = None
    ) -> "Iterator[PolicyAdministration]":
        """The use cases of administrators, with these units of files or all.

        Raises ConfigError, PolicyStoreUnavailable.
        """
        from scheduler_worker.compose.parts import policy_administration

        with ExitStack() as stack:
            with doing("opening the policy store and the shared state"):
                opened = stack.enter_context(policy_administration(self.settings(), units))
            yield opened


class StoreCommand(ManageCommand):
    """The first base of the command of an operation whose home is the store."""

    def add_connection(self, parser: argparse.ArgumentParser) -> None:
        """The program's own options say where the store is."""

    @contextmanager
    def connected(self, parsed_args: argparse.Namespace) -> "Iterator[StoreClient]":
        """Who is asked: this process."""
        from scheduler_worker.cli.store_client import StoreClient

        with self.administration(units=()) as administration:
            yield StoreClient(administration)
