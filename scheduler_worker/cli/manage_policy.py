"""``scheduler-worker-manage policy``: lists, exports and imports the policies of the store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from scheduler_worker.cli import import_ovirt, policy_changes
from scheduler_worker.cli.commands import actor, add_command, confirmed
from scheduler_worker.cli.dry_run_files import read_text
from scheduler_worker.cli.policy_texts import read_policies, write_policies
from scheduler_worker.conf import Settings
from scheduler_worker.factories import policy_administration
from scheduler_worker.policy_store import StoredPolicy

_LIST = """\
List all policies, the built-in ones first: name, id, version, who changed it last, and the clusters
that are attached to it. A locked one cannot be changed; clusters that are attached to none have the
policy nova.
"""
_EXPORT = """\
Print policies as YAML, for a repository or another policy store: all that are stored, or those that
are named. What is printed can be imported again, and then changes nothing. Versions and attachments
to clusters are the store's own and are not part of it.
"""
_IMPORT = """\
Make the policies of a YAML file those of the store. A policy is found by its id, or by its name if
the file gives no id; one that the store does not have is created. Policies that the file does not
name stay as they are.

What would change is shown first, as a diff, and done after a question: all of the file is checked
before anything is changed, and a policy that somebody else changes in between is refused. Clusters
that are attached to a changed policy decide by it from then on.

  policies:
    - name: packing
      filters:
        - unit: RamFilter
      weights:
        - {unit: RAMWeigher, factor: 2.0}
      parameters: {}
"""


def add_to(groups: Any) -> None:
    """Add the group to the parsers of all groups."""
    group = groups.add_parser("policy", help="the policies that administrators make")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")

    listing = add_command(commands, "list", _LIST, "list all policies")
    listing.set_defaults(run=_list)

    export = add_command(commands, "export", _EXPORT, "print policies as YAML")
    export.add_argument(
        "names", nargs="*", metavar="POLICY", help="name or id of a policy; default: all stored"
    )
    export.set_defaults(run=_export)

    importing = add_command(commands, "import", _IMPORT, "store the policies of a YAML file")
    importing.add_argument("file", type=Path, metavar="FILE", help="as `export` prints it")
    importing.add_argument("--yes", action="store_true", help="change it without a question")
    importing.add_argument(
        "--user",
        default=None,
        metavar="NAME",
        help="who makes the change, for the audit; default: the user of this system",
    )
    importing.set_defaults(run=_import)
    import_ovirt.add_to(commands)


# Commands


def _list(_arguments: argparse.Namespace, settings: Settings) -> int:
    with policy_administration(settings) as administration:
        clusters: dict[str, list[str]] = {}
        for each in administration.attachments.all():
            clusters.setdefault(each.policy_id, []).append(each.cluster)
        rows: list[tuple[str, ...]] = [("name", "id", "version", "changed by", "clusters")]
        rows += [_row(each, clusters) for each in administration.library.policies()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{'  '.join(cells).rstrip()}\n")
    return 0


def _row(policy: StoredPolicy, clusters: dict[str, list[str]]) -> tuple[str, ...]:
    document = policy.document
    by = "built in, locked" if policy.is_locked else policy.changed_by
    attached = ", ".join(clusters.get(document.id, []))
    return document.name, document.id, str(document.version), by, attached or "-"


def _export(arguments: argparse.Namespace, settings: Settings) -> int:
    with policy_administration(settings) as administration:
        if arguments.names:
            found = [administration.library.policy_called(each) for each in arguments.names]
        else:
            found = [each for each in administration.library.policies() if not each.is_locked]
    sys.stdout.write(write_policies([each.document for each in found]))
    return 0


def _import(arguments: argparse.Namespace, settings: Settings) -> int:
    given = read_policies(read_text(arguments.file), str(arguments.file))
    with policy_administration(settings) as administration:
        changes = policy_changes.between(administration.library.policies(), given)
        policy_changes.show(administration, changes)
        if not changes:
            sys.stdout.write("The store has these policies already; there is nothing to change.\n")
            return 0
        sys.stdout.flush()
        question = f"Change {len(changes)} of {len(given)} policies in the store?"
        if not arguments.yes and not confirmed(question):
            return 1
        policy_changes.make(administration, changes, actor(arguments.user))
    return 0
