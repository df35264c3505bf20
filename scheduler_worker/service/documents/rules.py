"""The rules of the book's documents, each a pure function from documents to documents.

Names are unique in any letter case, what is in use is not removed, and who names a version must
have seen the latest.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound
from scheduler_worker.policy_store import NEW, Attachment, StoredPolicy, StoredUnit
from scheduler_worker.service.policies.policy_rules import uses

Document = TypeVar("Document")


class Documents(msgspec.Struct, frozen=True):
    """All of them; a change replaces a mapping by another one, and alters none."""

    policies: Mapping[str, StoredPolicy] = {}
    """By id. Built-in policies are code, and not in it."""
    attachments: Mapping[str, Attachment] = {}
    """By cluster."""
    units: Mapping[str, StoredUnit] = {}
    """User units, by id."""

    def policy(self, policy_id: str, expected_version: int | None = None) -> StoredPolicy:
        """Raises NotFound, and EditConflict where it has another version than is expected."""
        stored = self.policies.get(policy_id)
        if stored is None:
            raise NotFound("policy", policy_id)
        document = stored.document
        if expected_version not in {None, document.version}:
            raise EditConflict(f"Policy {document.name}", stored.changed_by, document.version)
        return stored

    def clusters_of(self, policy_id: str) -> list[str]:
        """The clusters that are attached to a policy, by name."""
        attachments = self.attachments.values()
        return sorted(each.cluster for each in attachments if each.policy_id == policy_id)


def added(now: Documents, made: StoredPolicy) -> Documents:
    """Raises EditConflict: a policy of this id is there; NameTaken."""
    if made.document.id in now.policies:
        now.policy(made.document.id, NEW)  # which no stored one has
    return _with_policy(now, made)


def replaced(
    now: Documents,
    after: StoredPolicy,
    expected_version: int,
    clusters: Collection[str] | None = None,
) -> Documents:
    """``clusters``, which the editor may change, may have the policy now, and no other; None: any.

    Raises NotFound, NameTaken, and EditConflict: it has another version, or more clusters.
    """
    policy_id = after.document.id
    now.policy(policy_id, expected_version)
    if clusters is not None:
        for cluster in now.clusters_of(policy_id):
            if cluster not in clusters:
                raise _attachment_conflict(cluster, now.attachments[cluster])
    return _with_policy(now, after)


def _with_policy(now: Documents, policy: StoredPolicy) -> Documents:
    document = policy.document
    name = document.name.casefold()
    for other in now.policies.values():
        if other.document.name.casefold() == name and other.document.id != document.id:
            raise NameTaken(document.name)
    return structs.replace(now, policies={**now.policies, document.id: policy})


def removed(now: Documents, policy_id: str, expected_version: int | None = None) -> Documents:
    """Raises NotFound, EditConflict, and InUse, which names its clusters."""
    name = now.policy(policy_id, expected_version).document.name
    if clusters := now.clusters_of(policy_id):
        raise InUse(f"Policy {name}", clusters)
    return structs.replace(now, policies=_without(now.policies, policy_id))


def attached(now: Documents, attachment: Attachment, expected_version: int) -> Documents:
    """In place of the cluster's last one; :data:`NEW`: there is none.

    Raises EditConflict: it has another version; NotFound: the policy is not there, nor built in.
    """
    cluster = attachment.cluster
    before = now.attachments.get(cluster)
    if (before.version if before else NEW) != expected_version:
        raise _attachment_conflict(cluster, before)
    if not attachment.is_built_in:
        now.policy(attachment.policy_id)
    return structs.replace(now, attachments={**now.attachments, cluster: attachment})


def with_units(now: Documents, units: Sequence[StoredUnit]) -> Documents:
    """User units, in place of those with the same ids."""
    return structs.replace(now, units={**now.units, **{unit.id: unit for unit in units}})


def without_unit(now: Documents, unit_id: str) -> Documents:
    """Raises NotFound, and InUse, which names its policies."""
    unit = now.units.get(unit_id)
    if unit is None:
        raise NotFound("unit", unit_id)
    documents = [policy.document for policy in now.policies.values()]
    users = sorted(
        document.name
        for document in documents
        if any(use.unit == unit.name and kind == unit.kind for kind, use in uses(document))
    )
    if users:
        raise InUse(f"Unit {unit.name}", users)
    return structs.replace(now, units=_without(now.units, unit_id))


def _without(documents: Mapping[str, Document], key: str) -> Mapping[str, Document]:
    return {name: document for name, document in documents.items() if name != key}


def _attachment_conflict(cluster: str, now: Attachment | None) -> EditConflict:
    who, version = (now.changed_by, now.version) if now else ("", NEW)
    return EditConflict(f"The policy of cluster {cluster}", who, version)
