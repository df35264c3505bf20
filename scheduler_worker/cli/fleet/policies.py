"""``policy``: the policies in force of clusters, read and changed over the bus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cliff.command import Command

from scheduler_worker.cli.bind import PAGE, FleetCommand, FleetLister, FleetShow, Optional, cell
from scheduler_worker.cli.commands import confirmed
from scheduler_worker.cli.dry_run_files import read_text
from scheduler_worker.cli.fleet import policy_editing
from scheduler_worker.cli.fleet.policy_editing import InForce
from scheduler_worker.cli.policy_changes import difference
from scheduler_worker.cli.policy_texts import read_policies, write_policies
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.operations.clusters import InCluster, get_cluster_policy, list_clusters
from scheduler_worker.operations.operation import PageQuery

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_STORE = """\
These are the policies *in force* of clusters, which the workers decide under. The policies that
administrators make with the REST API are in a SQL store; `scheduler-worker-manage policy` is for
these. Where the store has attached a policy to a cluster, it is put in force again within a minute,
whatever was attached here.
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
        for cluster in client.every(list_clusters, PageQuery(limit=PAGE)):
            policy = policy_editing.get(client, cluster.name)
            balance = Optional(policy.balance.unit if policy.balance else None)
            sizes = len(policy.filters), len(policy.weights)
            rows.append((cluster.name, policy.name, policy.version, *sizes, balance, policy.id))
        return columns, rows


class ShowPolicy(_InForce, FleetShow):
    """Show the policy in force of a cluster."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_cluster(parser)

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Any:
        document = client.call(get_cluster_policy, InCluster(arguments.cluster))
        fields = {"cluster": arguments.cluster, **document}
        return tuple(fields), tuple(map(cell, fields.values()))


class DiffPolicies(FleetCommand):
    """Show how the policy in force of a cluster differs from another cluster's, or a file's.

    The file is as `policy export` prints it. Nothing is printed where both are the same.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_cluster(parser)
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("other", nargs="?", metavar="OTHER", help="another cluster")
        target.add_argument("--file", type=Path, metavar="FILE", help="a file with one policy")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        policy = policy_editing.get(client, arguments.cluster)
        if arguments.file:
            other_policy, name = read_one(arguments.file, None), str(arguments.file)
        else:
            other_policy, name = policy_editing.get(client, arguments.other), arguments.other
        sys.stdout.writelines(difference(policy, other_policy, arguments.cluster, name))
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
        policies = [policy for policy in in_force.newest() if not policy_editing.is_nova(policy)]
        policies += [
            policy_editing.own(in_force.policies[cluster], cluster)
            for cluster in arguments.clusters
            if policy_editing.is_nova(in_force.policies[cluster])
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
        in_force.check(arguments.clusters)
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
        changes = [
            (policy, clusters) for policy, clusters in map(in_force.change, policies) if clusters
        ]
        for policy, clusters in changes:
            for cluster in clusters:
                now = in_force.policies[cluster]
                sys.stdout.writelines(
                    difference(now, policy, f"{cluster}: {now.reference}", cluster)
                )
        if not changes:
            sys.stdout.write("The clusters have these policies already, or others.\n")
            return 0
        sys.stdout.flush()
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
        _add_cluster(parser)

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        policy_editing.edit(client, arguments.cluster)
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
        policy_editing.put(client, cluster, policy)
        sys.stdout.write(f"{cluster}: {policy.reference}\n")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cluster", metavar="CLUSTER")
