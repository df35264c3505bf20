"""Changes of the policies in force: which version is next, where they belong, and the editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from scheduler_worker.cli.policy_changes import difference
from scheduler_worker.cli.policy_texts import Given, read_policies, write_policies
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

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_HEAD = """\
# The policy in force of cluster {cluster}. Save it and leave the editor to put it in force;
# leave it unchanged, or without any text, to change nothing.
"""
_OF_NOVA = """\
# So far the workers' options decide there (the policy nova); this becomes a policy of its own.
"""


def get(client: SchedulerClient, cluster: str) -> ClusterPolicy:
    """The policy in force of a cluster."""
    return from_plain(client.call(get_cluster_policy, InCluster(cluster)))


def put(client: SchedulerClient, cluster: str, policy: ClusterPolicy) -> None:
    """Put it in force. Raises RequestError for the policy ``nova``, and as the client does."""
    if is_nova(policy):
        raise RequestError("id", "nova is the workers' options; leave the id out, or detach")
    client.call(attach_cluster_policy, DocumentInForce(cluster, to_plain(policy)))


def is_nova(policy: ClusterPolicy) -> bool:
    """Whether it is the policy of the workers' options."""
    return policy.id == NOVA


def own(policy: ClusterPolicy, cluster: str) -> ClusterPolicy:
    """The policy; instead of ``nova`` one of the cluster's own that is like it."""
    if not is_nova(policy):
        return policy
    return structs.replace(policy, id=str(uuid.uuid4()), name=cluster, version=1, description="")


class InForce(NamedTuple):
    """The policies in force."""

    policies: Mapping[str, ClusterPolicy]
    """By cluster."""

    @classmethod
    def of(cls, client: SchedulerClient, clusters: Sequence[str] | None = None) -> InForce:
        """The policies of some clusters, or of all."""
        listed = client.every(list_clusters, PageQuery(limit=1000)) if clusters is None else ()
        names = [cluster.name for cluster in listed] if clusters is None else clusters
        return cls({name: get(client, name) for name in names})

    def check(self, clusters: Sequence[str]) -> None:
        """Raises NotFound for a cluster that is not there, before anything is changed."""
        for cluster in clusters:
            if cluster not in self.policies:
                raise NotFound("cluster", cluster)

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

    def change(self, entry: Given) -> tuple[ClusterPolicy, list[str]]:
        """A policy of a file as it is to be in force, and the clusters where it is not so yet."""
        policy = entry.document
        if not entry.has_id:
            ids = (known.id for known in self.newest() if known.name == policy.name)
            policy = structs.replace(policy, id=next(ids, policy.id))
        policy = self.numbered(policy)
        return policy, [
            cluster
            for cluster, now in self.policies.items()
            if now.id == policy.id and now != policy
        ]


def edit(client: SchedulerClient, cluster: str) -> None:
    """Edit the policy in force of a cluster.

    Raises what the text, the workers or the bus have against it, once the editor is not to be
    opened again; the file with the text is kept then, and named on stderr.
    """
    before = get(client, cluster)
    head = _HEAD.format(cluster=cluster) + (_OF_NOVA if is_nova(before) else "")
    text = head + write_policies([own(before, cluster)])
    file = _write(cluster, text)
    try:
        after = _edited(client, cluster, before, text, file)
    except BaseException:
        sys.stderr.write(f"{cluster}: the text is kept in {file}\n")
        raise
    file.unlink()
    if after is None:
        sys.stdout.write(f"{cluster}: nothing was changed\n")
        return
    sys.stdout.writelines(difference(before, after, str(before.reference), cluster))
    sys.stdout.write(f"{cluster}: {after.reference}\n")


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
            after = in_force.numbered(_only(edited, file))
            _check_unchanged(client, cluster, before)
            put(client, cluster, after)
        except (ConfigError, RequestError) as error:
            if not _again(error):
                raise
        else:
            return after


def _write(cluster: str, text: str) -> Path:
    """A new file with the text, for this user alone."""
    descriptor, name = tempfile.mkstemp(prefix=f"policy-{cluster}-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)


def _open_editor(path: Path) -> None:
    """Raises ConfigError where the editor cannot be run, or fails."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        status = subprocess.run([*shlex.split(command), str(path)], check=False).returncode  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:
        raise ConfigError(f"$EDITOR: {command!r} cannot be run: {error}") from None
    if status:
        raise ConfigError(f"$EDITOR: {command!r} ended with {status}")


def _only(text: str, path: Path) -> ClusterPolicy:
    """The policy of an edited text. Raises ConfigError."""
    policies = read_policies(text, str(path))
    if len(policies) != 1:
        raise ConfigError(f"{path}: expected one policy, got {len(policies)}")
    return policies[0].document


def _check_unchanged(client: SchedulerClient, cluster: str, before: ClusterPolicy) -> None:
    """Raises EditConflict where another policy is in force by now."""
    now = get(client, cluster)
    if now != before:
        raise EditConflict(f"The policy of {cluster}", "", now.version)


def _again(error: Exception) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{error}\nEdit it again? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"", "y", "yes"}
