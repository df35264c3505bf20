"""``policy edit``: a policy, or what is in force of a cluster, in an editor."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from scheduler_worker.cli.bind import FleetCommand
from scheduler_worker.cli.commands import complain, say
from scheduler_worker.cli.policies import numbered, own
from scheduler_worker.cli.policy_names import (
    HELP,
    NamedPolicy,
    document_of,
    every_policy,
    in_force,
    resolved,
)
from scheduler_worker.cli.policy_texts import (
    PolicyEntry,
    changed_text,
    difference,
    read_policies,
    write_policies,
)
from scheduler_worker.errors import ConfigError, EditConflict, Invalid, NameTaken, RequestError
from scheduler_worker.model.policies import ClusterPolicy, to_plain
from scheduler_worker.operations.clusters import DocumentInForce, attach_cluster_policy
from scheduler_worker.operations.policies import PolicyView, put_policy
from scheduler_worker.wording import lines

if TYPE_CHECKING:
    from scheduler_worker.client import OperationsClient

_HEAD = """\
# {what}. Save it and leave the editor to put it in force; leave it
# unchanged, or without any text, to change nothing.
"""
_BUILT_IN = """\
# So far what is built in decides there (the policy {}); this becomes a policy of its own.
"""
_REFUSED = (ConfigError, RequestError, Invalid, NameTaken)
"""What is wrong with a text that can be edited again."""


class EditPolicy(FleetCommand):
    """Edit a policy in $VISUAL or $EDITOR.

    POLICY is the id or name of a policy, which changes for all of its clusters; they are named
    before the editor opens. Else it is a cluster: the policy that is in force there is edited, with
    the cluster's own values. A policy that is built in, such as `nova`, stays as it is, and becomes
    one of the cluster's own.

    The editor gets YAML. What is refused is shown with all errors, and can be edited again. The
    text is kept, in a file that is named, until it is in force. A policy that somebody else changed
    in between is refused.

      policy edit packing
      policy edit east
    """

    is_change = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("policy", metavar="POLICY", help=HELP)

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        return None

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        name: str = arguments.policy
        views = every_policy(client)
        edit = _edit(views, resolved(client, name), name)
        affected = ""
        if len(edit.clusters) > 1:
            affected = (
                f"{edit.before.name} is the policy of clusters {', '.join(edit.clusters)}: all of "
                "them get the change"
            )
            complain(affected)
        text = _text(edit, affected)
        with NamedTemporaryFile(
            "w", encoding="utf-8", prefix="policy-", suffix=".yaml", delete=False
        ) as written:
            written.write(text)
        file = Path(written.name)
        try:
            after = _edited(client, views, edit, text, file)
        except BaseException:
            complain(f"{name}: the text is kept in {file}")
            raise
        file.unlink()
        if after is None:
            say(f"{name}: nothing was changed")
            return 0
        say(*difference(edit.before, after, str(edit.before.reference), name))
        say(f"{name}: {after.reference}")
        return 0


class _Edit(NamedTuple):
    """What is edited."""

    before: ClusterPolicy
    shown: ClusterPolicy
    """What the editor gets: ``before``, or one of the cluster's own that is like it."""
    clusters: Sequence[str]
    """Who gets the change."""
    cluster: str | None
    """The cluster that was named, with ``before`` in force; None: it is the policy itself."""


def _edit(views: Sequence[PolicyView], named: NamedPolicy, name: str) -> _Edit:
    """Raises RequestError for what cannot be edited."""
    document = named.document
    shown = own(views, named)
    if named.cluster is not None:
        view = next((view for view in views if view.id == shown.id), None)
        clusters = sorted({named.cluster, *(view.clusters if view else ())})
        return _Edit(document, shown, clusters, named.cluster)
    if named.view is None:
        raise RequestError(
            "policy", f"{name} is an earlier version; `policy export` it to a file, and edit that"
        )
    if named.view.is_locked:
        raise RequestError(
            "policy",
            f"{document.name} is built in; `policy export` it to a file, and give it another name "
            "and id there",
        )
    return _Edit(document, shown, named.view.clusters, None)


def _text(edit: _Edit, affected: str) -> str:
    what = f"The policy {edit.before.name}"
    if edit.cluster is not None:
        what = f"The policy in force of cluster {edit.cluster}"
    head = _HEAD.format(what=what)
    if affected:
        head += f"# {affected}.\n"
    if edit.shown != edit.before:
        head += _BUILT_IN.format(edit.before.name)
    return lines(head) + write_policies([edit.shown])


def _edited(
    client: OperationsClient, views: Sequence[PolicyView], edit: _Edit, text: str, file: Path
) -> ClusterPolicy | None:
    """The policy that is stored then; None: the text was not changed, or deleted."""
    while True:
        _open_editor(file)
        edited = file.read_text(encoding="utf-8")
        if edited == text or not edited.strip():
            return None
        try:
            policies = read_policies(edited, str(file))
            if len(policies) != 1:
                raise ConfigError(f"{file}: expected one policy, got {len(policies)}")
            if edit.cluster is None:
                return _put(client, edit.before, policies[0])
            return _attach(client, views, edit, policies[0].document)
        except _REFUSED as error:
            if not _again(error):
                raise


def _put(client: OperationsClient, before: ClusterPolicy, entry: PolicyEntry) -> ClusterPolicy:
    """Replace the policy. Raises ConfigError for another id, and as the client does."""
    if entry.has_id and entry.document.id != before.id:
        raise ConfigError(f"id: is that of another policy; leave {before.id!r}")
    document = structs.replace(entry.document, id=before.id)
    return document_of(client.call(put_policy, changed_text(document, before.version)))


def _attach(
    client: OperationsClient, views: Sequence[PolicyView], edit: _Edit, document: ClusterPolicy
) -> ClusterPolicy:
    """Put the document in force in the cluster. Raises EditConflict: another one is there."""
    cluster = str(edit.cluster)
    after = numbered(views, document)
    if (now := in_force(client, cluster)) != edit.before:
        raise EditConflict(f"The policy of {cluster}", "", now.version)
    client.call(attach_cluster_policy, DocumentInForce(cluster, to_plain(after)))
    return after


def _open_editor(path: Path) -> None:
    """Raises ConfigError where the editor cannot be run, or fails."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.run([*shlex.split(command), str(path)], check=False).returncode  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:
        raise ConfigError(f"$EDITOR: {command!r} cannot be run: {error}") from None
    if status:
        raise ConfigError(f"$EDITOR: {command!r} ended with {status}")


def _again(error: Exception) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{lines(str(error))}\nEdit it again? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"", "y", "yes"}
