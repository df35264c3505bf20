"""The rules of the book's documents, each a pure function from documents to documents.

Names are unique in any letter case, and what is in use is not removed.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from scheduler_worker.errors import InUse, NameTaken, NotFound
from scheduler_worker.model.documents import (
    Attachment,
    Documents,
    StoredPolicy,
    StoredUnit,
)
from scheduler_worker.service.documents.policy_rules import uses

Document = TypeVar("Document")


def differing(before: Mapping[str, Document], after: Mapping[str, Document]) -> list[str]:
    """The keys whose document is another object, or that only one has."""
    if before is after:
        return []
    keys = sorted(before.keys() | after.keys())
    return [key for key in keys if before.get(key) is not after.get(key)]


def with_policy(now: Documents, policy: StoredPolicy) -> Documents:
    """With a new policy, or one in place of that with its id. Raises NameTaken."""
    document = policy.document
    name = document.name.casefold()
    for other in now.policies.values():
        if other.document.name.casefold() == name and other.document.id != document.id:
            raise NameTaken(document.name)
    return structs.replace(now, policies={**now.policies, document.id: policy})


def removed(now: Documents, policy_id: str) -> Documents:
    """Raises NotFound, and InUse, which names its clusters."""
    name = now.policy(policy_id).document.name
    if clusters := now.clusters_of(policy_id):
        raise InUse(f"Policy {name}", clusters)
    return structs.replace(now, policies=_without(now.policies, policy_id))


def attached(now: Documents, attachment: Attachment) -> Documents:
    """In place of the cluster's last one. Raises NotFound: there is no such policy."""
    if not attachment.is_built_in:
        now.policy(attachment.policy_id)
    return structs.replace(now, attachments={**now.attachments, attachment.cluster: attachment})


def with_units(now: Documents, units: Sequence[StoredUnit]) -> Documents:
    """User units, in place of those with the same ids."""
    return structs.replace(now, units={**now.units, **{unit.id: unit for unit in units}})


def without_unit(now: Documents, unit_id: str) -> Documents:
    """Raises NotFound, and InUse, which names its policies."""
    unit = now.units.get(unit_id)
    if unit is None:
        raise NotFound("unit", unit_id)
    check_unused(now, [unit])
    return structs.replace(now, units=_without(now.units, unit_id))


def check_unused(now: Documents, units: Sequence[StoredUnit]) -> None:
    """Raises InUse where policies use one of the units; names them."""
    documents = [policy.document for policy in now.policies.values()]
    for unit in units:
        users = sorted(
            document.name
            for document in documents
            if any(use.unit == unit.name and kind == unit.kind for kind, use in uses(document))
        )
        if users:
            raise InUse(f"Unit {unit.name}", users)


def _without(documents: Mapping[str, Document], key: str) -> Mapping[str, Document]:
    return {name: document for name, document in documents.items() if name != key}


def merged(first: Documents, second: Documents) -> Documents:
    """Both; the policy or attachment of a key that was changed last.

    Without a time, or of the same time, that of the second. Of a name that both have under
    different ids, that of the first gets the name of its cluster behind it, or its id. A unit that
    either has enabled is enabled: its policies may use it.
    """
    policies = {**first.policies, **second.policies}
    attachments = {**first.attachments, **second.attachments}
    for key, policy in first.policies.items():
        if policy.changed_at_s > policies[key].changed_at_s:
            policies[key] = policy
    for cluster, attachment in first.attachments.items():
        if attachment.changed_at_s > attachments[cluster].changed_at_s:
            attachments[cluster] = attachment
    taken = {policy.document.name.casefold(): key for key, policy in second.policies.items()}
    for key, policy in policies.items():
        if taken.setdefault(policy.document.name.casefold(), key) != key:
            [whose, *_] = [*first.clusters_of(key), key]
            name = f"{policy.document.name} ({whose})"
            document = structs.replace(policy.document, name=name)
            policies[key] = structs.replace(policy, document=document)
    enabled = {key: unit for key, unit in first.units.items() if unit.is_enabled}
    return Documents(policies, attachments, {**first.units, **second.units, **enabled})
