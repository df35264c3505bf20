"""``policy``: the policies of administrators, and the clusters that decide under them.

What is not an operation's own command, and not ``policy edit``.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from scheduler_worker.cli.bind import PAGE, FleetCommand, FleetShow, cell
from scheduler_worker.cli.commands import confirmed, say
from scheduler_worker.cli.files import read_text
from scheduler_worker.cli.policy_names import (
    HELP,
    NamedPolicy,
    document_of,
    every_policy,
    policy_called,
    resolved,
)
from scheduler_worker.cli.policy_texts import (
    PolicyEntry,
    between,
    difference,
    make,
    read_policies,
    show,
    units_of,
    write_policies,
)
from scheduler_worker.errors import ConfigError, NotFound, RequestError
from scheduler_worker.model.policies import NOVA, ClusterPolicy, to_plain, write_policy
from scheduler_worker.operations.clusters import (
    DocumentInForce,
    attach_cluster_policy,
    list_clusters,
)
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.policies import (
    NewAttachment,
    PolicyView,
    SeenPolicy,
    attach_cluster,
    remove_policy,
)

if TYPE_CHECKING:
    from scheduler_worker.client import OperationsClient

_FILE = "as `policy export` prints it; `-`: the input"


class ShowPolicy(FleetShow):
    """Show a policy.

    POLICY is the id or name of a policy, in any letter case, or NAME@VERSION for what it was in
    that version. Else it is the name of a cluster, for what is in force there:

      policy show packing
      policy show packing@3
      policy show east
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("policy", metavar="POLICY", help=HELP)

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> Any:
        named = resolved(client, arguments.policy)
        fields: dict[str, Any] = {"cluster": named.cluster} if named.cluster else {}
        fields |= msgspec.json.decode(write_policy(named.document))
        if (view := named.view) is not None:
            names = ("is_locked", "changed_by", "changed_at", "clusters")
            fields |= {name: getattr(view, name) for name in names}
        return tuple(fields), tuple(map(cell, fields.values()))


class DiffPolicies(FleetCommand):
    """Show how a policy differs from another one, or from a file's.

    Nothing is printed where both are the same. POLICY and OTHER are ids or names of policies,
    NAME@VERSION, or clusters; the file is as `policy export` prints it:

      policy diff packing@3 packing
      policy diff east west
      policy diff packing --file packing.yaml
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("policy", metavar="POLICY", help=HELP)
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("other", nargs="?", metavar="OTHER", help="likewise")
        target.add_argument("--file", type=Path, metavar="FILE", help="a file with one policy")

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        policy = resolved(client, arguments.policy).document
        if arguments.file:
            other, name = read_one(arguments.file, None), str(arguments.file)
        else:
            other, name = resolved(client, arguments.other).document, arguments.other
        say(*difference(policy, other, arguments.policy, name))
        return 0


class ExportPolicies(FleetCommand):
    """Print policies as YAML, for a repository or other workers.

    It prints all policies that are not built in, or the named ones. `policy import` and `policy
    attach` read it. Versions and which cluster has which policy are left out, so a repository shows
    changes of policies only. A POLICY is the id or name of a policy, NAME@VERSION, or a cluster.
    What is built in is printed for a cluster as a policy of its own.

      policy export > policies.yaml
      policy export packing@3 > packing.yaml     to go back: policy import packing.yaml
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "policies", nargs="*", metavar="POLICY", help=f"{HELP}; default: all not built in"
        )

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        views = every_policy(client)
        if not arguments.policies:
            stored = (document_of(view) for view in views if not view.is_locked)
            policies = sorted(stored, key=lambda policy: policy.name.casefold())
        else:
            policies = self._named(client, views, arguments.policies)
        sys.stdout.write(write_policies(policies))
        return 0

    def _named(
        self, client: OperationsClient, views: Sequence[PolicyView], names: Sequence[str]
    ) -> list[ClusterPolicy]:
        """The policies, each once. Raises ConfigError for two texts of one."""
        found: dict[str, ClusterPolicy] = {}
        for name in dict.fromkeys(names):
            policy = own(views, resolved(client, name))
            if found.setdefault(policy.id, policy) != policy:
                raise ConfigError(f"{name}: is another text of a policy that is named before it")
        return list(found.values())


class AttachPolicy(FleetCommand):
    """Attach clusters to a policy: every decision after that is made under it.

    POLICY is the id or name of a policy, or a cluster, whose policy and values the others get. The
    clusters have the policy's values of its parameters; --parameter gives them a value of their
    own.

    A word that ends in .yaml or .yml or contains a slash is a file, as `policy export` prints it:
    its policy is stored, with the next version if it was changed, and all clusters that have it get
    the change.

      policy attach packing east west
      policy attach packing east --parameter HighUtilization=70
      policy attach policies.yaml east --policy packing
    """

    is_change = True
    _read: ClusterPolicy | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("policy", metavar="POLICY|FILE", help="id, name, cluster, or a file")
        parser.add_argument("clusters", nargs="+", metavar="CLUSTER")
        parser.add_argument(
            "--policy",
            dest="of_file",
            metavar="NAME",
            help="which policy of the file, if there are several",
        )
        parser.add_argument(
            "--parameter",
            dest="parameters",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="the clusters' own value of a parameter of the policy, repeatable",
        )

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        if not _is_file(arguments.policy):
            return None  # which ones the policy uses is known once it was read
        return units_of([PolicyEntry(self._of_file(arguments), True)])

    def _of_file(self, arguments: argparse.Namespace) -> ClusterPolicy:
        """The policy of the file, which may be the input, and is read once."""
        if self._read is None:
            self._read = read_one(Path(arguments.policy), arguments.of_file)
        return self._read

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        own_values = _values(arguments.parameters)
        if _is_file(arguments.policy):
            if own_values:
                raise ConfigError("--parameter: write the values into the file, or attach by name")
            policy = numbered(every_policy(client), self._of_file(arguments))
            _check_clusters(client, arguments.clusters)
            _attach(client, policy, arguments.clusters)
            return 0
        if arguments.of_file:
            raise ConfigError("--policy: it chooses a policy of a file; name the policy alone")
        named = resolved(client, arguments.policy)
        if named.view is None and named.cluster is None:
            raise RequestError(
                "policy",
                f"{arguments.policy} is not the policy as it is now; to go back to it, `policy "
                "export` it to a file and `policy import` that",
            )
        if named.cluster and named.document.id != NOVA:
            own_values = {**named.document.parameters, **own_values}
        _check_clusters(client, arguments.clusters)
        for cluster in arguments.clusters:
            client.call(
                attach_cluster,
                NewAttachment(name=cluster, policy=named.document.id, parameters=own_values),
            )
            say(f"{cluster}: {named.document.reference}")
        return 0


class ImportPolicies(FleetCommand):
    """Store the policies of a YAML file.

    A policy is found by its id, or by its name if the file gives no id; one that is not stored is
    created. Policies that the file does not name stay as they are.

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

    For example:
      policy import policies.yaml
    """

    is_change = True
    _read: Sequence[PolicyEntry] | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help=_FILE)
        parser.add_argument("--yes", action="store_true", help="change them without a question")

    def units(self, arguments: argparse.Namespace) -> Collection[str] | None:
        return units_of(self._entries(arguments.file))

    def _entries(self, file: Path) -> Sequence[PolicyEntry]:
        """The policies of the file, which may be the input, and is read once."""
        if self._read is None:
            self._read = read_policies(read_text(file), str(file))
        return self._read

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        entries = self._entries(arguments.file)
        changes = between(every_policy(client), entries)
        show(client, changes)
        if not changes:
            say("These policies are stored already; there is nothing to change.")
            return 0
        question = f"Change {len(changes)} of {len(entries)} policies?"
        if not arguments.yes and not confirmed(question):
            return 1
        make(client, changes)
        return 0


class RemovePolicy(FleetCommand):
    """Remove a policy that no cluster has.

    POLICY is its id or name. Attach its clusters to another policy first, or detach them. Its
    history stays: `policy history ID`.

      policy remove packing
    """

    is_change = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("policy", metavar="POLICY", help="id or name")

    def ask(self, client: OperationsClient, arguments: argparse.Namespace) -> int:
        view = policy_called(client, arguments.policy)
        client.call(remove_policy, SeenPolicy(id=view.id, version=view.version))
        say(f"removed: {view.name}")
        return 0


# Files


def read_one(path: Path, name: str | None) -> ClusterPolicy:
    """The only policy of a file, or the policy of this name. Raises ConfigError."""
    documents = [policy.document for policy in read_policies(read_text(path), str(path))]
    matching = [document for document in documents if name in {None, document.name}]
    if len(matching) != 1:
        names = ", ".join(document.name for document in documents) or "none"
        raise ConfigError(f"{path}: name one of its policies with --policy; there are: {names}")
    return matching[0]


def _is_file(word: str) -> bool:
    return word == "-" or "/" in word or word.endswith((".yaml", ".yml"))


# Documents for clusters


def own(views: Sequence[PolicyView], named: NamedPolicy) -> ClusterPolicy:
    """The document; instead of what is built in, for a cluster one of its own that is like it."""
    policy = named.document
    is_built_in = any(view.is_locked and view.id == policy.id for view in views)
    if named.cluster is None or not is_built_in:
        return policy
    new_id = str(uuid.uuid4())
    return structs.replace(policy, id=new_id, name=named.cluster, version=1, description="")


def numbered(views: Sequence[PolicyView], policy: ClusterPolicy) -> ClusterPolicy:
    """The policy in its version: that of an equal one that is stored, else the next of its id."""
    now = next((document_of(view) for view in views if view.id == policy.id), None)
    if now is None:
        return structs.replace(policy, version=1)
    same = structs.replace(policy, version=now.version)
    return same if same == now else structs.replace(policy, version=now.version + 1)


def _attach(client: OperationsClient, policy: ClusterPolicy, clusters: Sequence[str]) -> None:
    """Put a document in force for each cluster, and say so."""
    for cluster in clusters:
        client.call(attach_cluster_policy, DocumentInForce(cluster, to_plain(policy)))
        say(f"{cluster}: {policy.reference}")


def _check_clusters(client: OperationsClient, names: Sequence[str]) -> None:
    """Raises NotFound before anything is changed."""
    known = {cluster.name for cluster in client.every(list_clusters, PageQuery(limit=PAGE))}
    for name in names:
        if name not in known:
            raise NotFound("cluster", name)


def _values(pairs: Sequence[str]) -> Mapping[str, str]:
    """The values of parameters. Raises ConfigError."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--parameter: {pair!r} is not NAME=VALUE")
        values[name] = value
    return values
