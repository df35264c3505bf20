"""``scheduler-worker-manage policy`` and ``unit``: the policies of the store, and their units."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from scheduler_worker.cli.commands import actor, add_author, confirmed, say, say_table
from scheduler_worker.cli.manage import ManageCommand

if TYPE_CHECKING:
    from scheduler_worker.policy_store import StoredPolicy


class ListStored(ManageCommand):
    """List all policies, the built-in ones first.

    Each has its name, id, version, who changed it last, and the clusters that are attached to it. A
    locked one cannot be changed; clusters that are attached to none have the policy nova.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.administration(units=()) as administration:
            clusters: dict[str, list[str]] = {}
            for attachment in administration.attachments.all():
                clusters.setdefault(attachment.policy_id, []).append(attachment.cluster)
            rows = [_row(policy, clusters) for policy in administration.library.policies()]
        say_table([("name", "id", "version", "changed by", "clusters"), *rows])


class ExportStored(ManageCommand):
    """Print policies as YAML, for a repository or another policy store.

    It prints all stored policies, or the named ones. What is printed can be imported again,
    and then changes nothing. Versions and attachments to clusters are the store's own and are not
    part of it.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "names", nargs="*", metavar="POLICY", help="name or id of a policy; default: all stored"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from scheduler_worker.cli.policy_texts import write_policies

        with self.administration(units=()) as administration:
            library = administration.library
            if parsed_args.names:
                policies = [library.policy_called(name) for name in parsed_args.names]
            else:
                policies = [policy for policy in library.policies() if not policy.is_locked]
        sys.stdout.write(write_policies([policy.document for policy in policies]))


class ImportStored(ManageCommand):
    """Replace the policies of the store by a YAML file's.

    A policy is found by its id, or by its name if the file gives no id; one that the store does not
    have is created. Policies that the file does not name stay as they are.

    What would change is shown first, as a diff, and done after a question: all of the file is
    checked before anything is changed, and a policy that somebody else changes in between is
    refused. Clusters that are attached to a changed policy decide by it from then on.

      policies:
        - name: packing
          filters:
            - unit: RamFilter
          weights:
            - {unit: RAMWeigher, factor: 2.0}
          parameters: {}
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="as `export` prints it")
        parser.add_argument("--yes", action="store_true", help="change it without a question")
        add_author(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from scheduler_worker.cli import policy_texts
        from scheduler_worker.cli.files import read_text

        policies = policy_texts.read_policies(read_text(parsed_args.file), str(parsed_args.file))
        with self.administration(policy_texts.units_of(policies)) as administration:
            changes = policy_texts.between(administration.library.policies(), policies)
            policy_texts.show(administration, changes)
            if not changes:
                say("The store has these policies already; there is nothing to change.")
                return 0
            question = f"Change {len(changes)} of {len(policies)} policies in the store?"
            if not parsed_args.yes and not confirmed(question):
                return 1
            policy_texts.make(administration, changes, actor(parsed_args.author))
        return 0


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


class ListUnits(ManageCommand):
    """List the units that policies may use and that do not come with the worker.

    Each has its name, kind, whether it is enabled, and its description. A file of [external_units]
    directory that cannot be used is listed under its own name, with the reason. --all also lists
    the units that come with the worker.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--all", action="store_true", help="also units that come with the worker"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.administration() as administration:
            units = administration.library.units()
        rows = [
            (unit.name, unit.kind, "yes" if unit.is_enabled else "no", unit.id, unit.description)
            for unit in units
            if parsed_args.all or not unit.is_internal
        ]
        say_table([("name", "kind", "enabled", "id", "description"), *rows])


class EnableUnit(ManageCommand):
    """Enable units from files of [external_units] directory.

    From now on policies may use them, those attached over RPC included. UNIT is an id, or a name,
    which means all kinds of units of that name. Look at the file first: it will take part in
    decisions.

      scheduler-worker-manage unit enable MaxVms
    """

    enables: ClassVar[bool] = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("unit", metavar="UNIT", help="id or name")
        add_author(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.administration([parsed_args.unit]) as administration:
            changed = administration.switch_unit(
                parsed_args.unit, actor(parsed_args.author), is_enabled=self.enables
            )
        how = "enabled" if self.enables else "disabled"
        say(*(f"The {unit.kind} {unit.name} is {how}" for unit in changed))


class DisableUnit(EnableUnit):
    """Disable units from files: policies cannot use them any more.

    A unit is not disabled while a stored policy uses it, or one that a cluster has over RPC; change
    or detach these first. UNIT is an id, or a name.
    """

    enables = False


def _row(policy: "StoredPolicy", clusters: dict[str, list[str]]) -> tuple[str, ...]:
    document = policy.document
    by = "built in, locked" if policy.is_locked else policy.changed_by
    attached = ", ".join(clusters.get(document.id, []))
    return document.name, document.id, str(document.version), by, attached or "-"
