"""``policy``: the policies in force of clusters, read and changed over the bus."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

from cliff.command import Command
from msgspec import structs

from scheduler_worker.cli.bind import PAGE, FleetCommand, FleetLister, FleetShow, Optional, cell
from scheduler_worker.cli.commands import complain, confirmed, say
from scheduler_worker.cli.files import read_text
from scheduler_worker.cli.policy_texts import PolicyEntry, difference, read_policies, write_policies
from scheduler_worker.cli.progress import counted
from scheduler_worker.errors import ConfigError, EditConflict, NotFound, RequestError
from scheduler_worker.model.policies import NOVA, ClusterPolicy, from_plain, to_plain
from scheduler_worker.operations.clusters import (
    DocumentInForce,
    InCluster,
    attach_cluster_policy,
    get_cluster_policy,
    list_clusters,
)
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.wording import lines

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_STORE = """\
These are the policies *in force* of clusters, which the workers decide under. The policies that
administrators make with the REST API are in a SQL store; `scheduler-worker-manage policy` is for
these. Where the store has attached a policy to a cluster, it is put in force again within a minute,
whatever was attached here.
"""
_HEAD = """\
# The policy in force of cluster {cluster}. Save it and leave the editor to put it in force;
# leave it unchanged, or without any text, to change nothing.
"""
_OF_NOVA = """\
# So far the workers' options decide there (the policy nova); this becomes a policy of its own.
"""


class _InForce(Command):
    """Says in its help which policies these are."""

    def get_epilog(self) -> str:
        return _STORE


class ListPolicies(_InForce, FleetLister):
    """List the policy in force of each cluster.

    A cluster without one of its own has the policy `nova`, which the workers' options describe.
    """

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Any:
        columns = ("Cluster", "Policy", "Version", "Filters", "Weights", "Balance", "Id")
        rows = []
        clusters = list(client.every(list_clusters, PageQuery(limit=PAGE)))
        for cluster in counted(clusters, "reading policies of clusters", len(clusters)):
            policy = _get(client, cluster.name)
            balance = Optional(policy.balance.unit if policy.balance else None)
            sizes = len(policy.filters), len(policy.weights)
            rows.append((cluster.name, policy.name, policy.version, *sizes, balance, policy.id))
        return columns, rows


class ShowPolicy(_InForce, FleetShow):
    """Show the policy in force of a cluster."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Any:
        document = client.call(get_cluster_policy, InCluster(arguments.cluster))
        fields = {"cluster": arguments.cluster, **document}
        return tuple(fields), tuple(map(cell, fields.values()))


class DiffPolicies(FleetCommand):
    """Show how the policy in force of a cluster differs from another cluster's, or a file's.

    The file is as `policy export` prints it. Nothing is printed where both are the same.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("other", nargs="?", metavar="OTHER", help="another cluster")
        target.add_argument("--file", type=Path, metavar="FILE", help="a file with one policy")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        policy = _get(client, arguments.cluster)
        if arguments.file:
            other_policy, name = read_one(arguments.file, None), str(arguments.file)
        else:
            other_policy, name = _get(client, arguments.other), arguments.other
        say(*difference(policy, other_policy, arguments.cluster, name))
        return 0


class ExportPolicies(FleetCommand):
    """Print the policies in force of all clusters, or of some, as YAML.

    `policy attach` and `policy import` read it, and `scheduler-worker-manage policy import` puts it
    into the store. A policy that several clusters have is printed once, in its newest version; the
    policy `nova` is printed only for clusters that are named, as a policy of the cluster's own.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("clusters", nargs="*", metavar="CLUSTER", help="default: all")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        in_force = InForce.of(client, arguments.clusters or None)
        policies = [policy for policy in in_force.newest() if not _is_nova(policy)]
        policies += [
            _own(in_force.policies[cluster], cluster)
            for cluster in arguments.clusters
            if _is_nova(in_force.policies[cluster])
        ]
        sys.stdout.write(write_policies(policies))
        return 0


class AttachPolicy(_InForce, FleetCommand):
    """Put the policy of a file in force for clusters.

    Every decision after that is made under it. It gets the next version where a cluster has a
    policy of this id, else version 1. The workers refuse one that cannot be compiled, with all
    errors at once.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="as `policy export` prints it")
        parser.add_argument("clusters", nargs="+", metavar="CLUSTER")
        parser.add_argument("--policy", metavar="NAME", help="which one, if there are several")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        policy = read_one(arguments.file, arguments.policy)
        in_force = InForce.of(client)
        for cluster in arguments.clusters:
            if cluster not in in_force.policies:  # before anything is changed
                raise NotFound("cluster", cluster)
        attach(client, in_force.numbered(policy), arguments.clusters)
        return 0


class ImportPolicies(_InForce, FleetCommand):
    """Bring the policies in force up to a file, in every cluster that has them.

    A policy of the file is put in force where one of its id, or without an id there one of its
    name, is in force in another form; clusters with other policies keep these. Shows what would
    change, and asks.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="as `policy export` prints it")
        parser.add_argument("--yes", action="store_true", help="change them without a question")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        policies = read_policies(read_text(arguments.file), str(arguments.file))
        in_force = InForce.of(client)
        changes = [change for change in map(in_force.change, policies) if change[1]]
        for policy, clusters in changes:
            for cluster in clusters:
                now = in_force.policies[cluster]
                before = f"{cluster}: {now.reference}"
                say(*difference(now, policy, before, cluster))
        if not changes:
            say("The clusters have these policies already, or others.")
            return 0
        if not arguments.yes and not confirmed("Put these policies in force?"):
            return 1
        for policy, clusters in changes:
            attach(client, policy, clusters)
        return 0


class EditPolicy(_InForce, FleetCommand):
    """Edit the policy in force of a cluster in $VISUAL or $EDITOR.

    The editor gets YAML. What the workers refuse is shown with all errors, and can be edited again.
    The text is kept, in a file that is named, until it is in force. Other clusters with this
    policy keep theirs: export, edit and import it to change it everywhere. The policy `nova` itself
    is the workers' options. Editing it makes a policy of the cluster's own.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        cluster = arguments.cluster
        before = _get(client, cluster)
        head = _HEAD.format(cluster=cluster) + (_OF_NOVA if _is_nova(before) else "")
        text = head + write_policies([_own(before, cluster)])
        with NamedTemporaryFile(
            "w", encoding="utf-8", prefix=f"policy-{cluster}-", suffix=".yaml", delete=False
        ) as written:
            written.write(text)
        file = Path(written.name)
        try:
            after = _edited(client, cluster, before, text, file)
        except BaseException:
            complain(f"{cluster}: the text is kept in {file}")
            raise
        file.unlink()
        if after is None:
            say(f"{cluster}: nothing was changed")
            return 0
        say(*difference(before, after, str(before.reference), cluster))
        say(f"{cluster}: {after.reference}")
        return 0


def read_one(path: Path, name: str | None) -> ClusterPolicy:
    """The only policy of a file, or the policy of this name. Raises ConfigError."""
    documents = [policy.document for policy in read_policies(read_text(path), str(path))]
    matching = [document for document in documents if name in {None, document.name}]
    if len(matching) != 1:
        names = ", ".join(document.name for document in documents) or "none"
        raise ConfigError(f"{path}: name one of its policies with --policy; there are: {names}")
    return matching[0]


def attach(client: SchedulerClient, policy: ClusterPolicy, clusters: Sequence[str]) -> None:
    """Put it in force for each cluster, and say so."""
    for cluster in clusters:
        _put(client, cluster, policy)
        say(f"{cluster}: {policy.reference}")


def _get(client: SchedulerClient, cluster: str) -> ClusterPolicy:
    return from_plain(client.call(get_cluster_policy, InCluster(cluster)))


def _put(client: SchedulerClient, cluster: str, policy: ClusterPolicy) -> None:
    """Put it in force. Raises RequestError for the policy ``nova``, and as the client does."""
    if _is_nova(policy):
        raise RequestError("id", "nova is the workers' options; leave the id out, or detach")
    client.call(attach_cluster_policy, DocumentInForce(cluster, to_plain(policy)))


def _is_nova(policy: ClusterPolicy) -> bool:
    return policy.id == NOVA


def _own(policy: ClusterPolicy, cluster: str) -> ClusterPolicy:
    """The policy; instead of ``nova`` one of the cluster's own that is like it."""
    if not _is_nova(policy):
        return policy
    return structs.replace(policy, id=str(uuid.uuid4()), name=cluster, version=1, description="")


class InForce(NamedTuple):
    """The policies in force."""

    policies: Mapping[str, ClusterPolicy]
    """By cluster."""

    @classmethod
    def of(cls, client: SchedulerClient, clusters: Sequence[str] | None = None) -> InForce:
        """The policies of some clusters, or of all."""
        listed = client.every(list_clusters, PageQuery(limit=PAGE)) if clusters is None else ()
        names = [cluster.name for cluster in listed] if clusters is None else clusters
        named = counted(names, "reading policies of clusters", len(names))
        return cls({name: _get(client, name) for name in named})

    def newest(self) -> list[ClusterPolicy]:
        """Each policy once, in its newest version, by name."""
        newest: dict[str, ClusterPolicy] = {}
        for policy in self.policies.values():
            if policy.id not in newest or policy.version > newest[policy.id].version:
                newest[policy.id] = policy
        return sorted(newest.values(), key=lambda policy: policy.name)

    def numbered(self, policy: ClusterPolicy) -> ClusterPolicy:
        """The policy in its version: that of an equal one in force, else the next of its id."""
        newest = next((candidate for candidate in self.newest() if candidate.id == policy.id), None)
        if newest is None:
            return structs.replace(policy, version=1)
        same = structs.replace(policy, version=newest.version)
        return same if same == newest else structs.replace(policy, version=newest.version + 1)

    def change(self, entry: PolicyEntry) -> tuple[ClusterPolicy, list[str]]:
        """A policy of a file as it is to be in force, and the clusters where it is not so yet."""
        policy = entry.document
        if not entry.has_id:
            ids = (known.id for known in self.newest() if known.name == policy.name)
            policy = structs.replace(policy, id=next(ids, policy.id))
        policy = self.numbered(policy)
        in_force = self.policies.items()
        return policy, [name for name, now in in_force if now.id == policy.id and now != policy]


def _edited(
    client: SchedulerClient, cluster: str, before: ClusterPolicy, text: str, file: Path
) -> ClusterPolicy | None:
    """The policy that is in force then; None: the text was not changed, or deleted."""
    in_force = InForce.of(client)
    while True:
        _open_editor(file)
        edited = file.read_text(encoding="utf-8")
        if edited == text or not edited.strip():
            return None
        try:
            policies = read_policies(edited, str(file))
            if len(policies) != 1:
                raise ConfigError(f"{file}: expected one policy, got {len(policies)}")
            after = in_force.numbered(policies[0].document)
            if (now := _get(client, cluster)) != before:  # another policy is in force by now
                raise EditConflict(f"The policy of {cluster}", "", now.version)
            _put(client, cluster, after)
        except (ConfigError, RequestError) as error:
            if not _again(error):
                raise
        else:
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
