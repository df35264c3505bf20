"""``scheduler-worker-manage policy import-ovirt``: the policies of an oVirt engine."""

import argparse
from pathlib import Path

from scheduler_worker.cli.commands import add_author
from scheduler_worker.cli.manage import ManageCommand


class ImportOvirt(ManageCommand):
    r"""Store the policies of an oVirt engine.

    They keep their filters, positions, weights, factors, balance, properties and ids. The engine is
    only read, with the rights of the user that is named. Policies that come with the worker, such
    as none and power_saving, are compared and not stored.

    What would change is shown first, as a diff, and done after a question; a second run finds
    nothing to change. Units that are not known here, such as external ones, are named, and nothing
    is changed unless --skip-unknown-units leaves them out.

    For example:
      scheduler-worker-manage policy import-ovirt --user admin@internal --ca-file engine-ca.pem \
          --url https://engine.example.com/ovirt-engine/api --dry-run
      scheduler-worker-manage policy import-ovirt --user admin@internal --ca-file engine-ca.pem \
          --url https://engine.example.com/ovirt-engine/api --cluster-map Default=rack-1

    A cluster of the engine that --cluster-map names is attached here to the policy that it has
    there, with its own properties. Clusters that it does not name are listed, and not attached.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--url", required=True, help="of the engine's API, .../ovirt-engine/api"
        )
        parser.add_argument("--user", required=True, help="of the engine, such as admin@internal")
        parser.add_argument(
            "--password-file",
            type=Path,
            metavar="FILE",
            help="whose first line is the password; default: it is asked for",
        )
        parser.add_argument(
            "--ca-file",
            metavar="FILE",
            help="certificates to verify the engine's; default: the system's certificates",
        )
        parser.add_argument(
            "--cluster-map",
            action="append",
            default=[],
            metavar="ENGINES=WORKERS",
            help="attach our cluster as that of the engine; NAME alone where both have the name. "
            "May be given several times",
        )
        parser.add_argument(
            "--skip-unknown-units",
            action="store_true",
            help="leave out units that are not known here",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would change, no more"
        )
        parser.add_argument("--yes", action="store_true", help="change it without a question")
        add_author(parser, "--as")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from scheduler_worker.cli import import_ovirt

        return import_ovirt.run(parsed_args, self.settings())
