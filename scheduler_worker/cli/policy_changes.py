"""Changes of the stored policies to others: found, shown as a diff, and made."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from scheduler_worker.cli.policy_texts import Given, write_policies
from scheduler_worker.errors import Invalid
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.policy_store import StoredPolicy

if TYPE_CHECKING:
    from scheduler_worker.service.policies.administration import PolicyAdministration
    from scheduler_worker.service.policies.audit import Actor


class PolicyChange(NamedTuple):
    """A policy as it is stored (None: it is not), and as it is to be."""

    before: StoredPolicy | None
    after: ClusterPolicy


def between(stored: Sequence[StoredPolicy], entries: Sequence[Given]) -> list[PolicyChange]:
    """What differs, in the order given. Raises Invalid for a built-in policy."""
    changes = []
    for entry in entries:
        before = _stored(stored, entry)
        if before is not None and before.is_locked:
            raise Invalid(entry.document.name, "is a built-in policy; give it another name and id")
        after = entry.document
        if before is not None:
            now = before.document
            after = structs.replace(after, id=now.id, version=now.version)
        if before is None or after != before.document:
            changes.append(PolicyChange(before, after))
    return changes


def _stored(stored: Sequence[StoredPolicy], entry: Given) -> StoredPolicy | None:
    if entry.has_id:
        return next((policy for policy in stored if policy.document.id == entry.document.id), None)
    key = entry.document.name.casefold()
    return next((policy for policy in stored if policy.document.name.casefold() == key), None)


def show(administration: PolicyAdministration, changes: Sequence[PolicyChange]) -> None:
    """Check each change, and print it. Raises Invalid or NameTaken for one that is refused."""
    for before, after in changes:
        administration.check(after)
        sys.stdout.writelines(_diff(before, after))


def _diff(before: StoredPolicy | None, after: ClusterPolicy) -> Iterator[str]:
    if before is None:
        return difference(None, after, "not stored", after.name)
    now = before.document
    return difference(now, after, f"{now.name}, version {now.version}", after.name)


def difference(
    before: ClusterPolicy | None, after: ClusterPolicy, before_name: str, after_name: str
) -> Iterator[str]:
    """The lines of a diff between two policies as YAML."""
    old = write_policies([before]) if before else ""
    yield from difflib.unified_diff(
        old.splitlines(keepends=True)[1:],
        write_policies([after]).splitlines(keepends=True)[1:],
        fromfile=before_name,
        tofile=after_name,
    )


def make(
    administration: PolicyAdministration, changes: Sequence[PolicyChange], actor: Actor
) -> None:
    """Make the changes, and print what was done; a policy that changed meanwhile is refused."""
    for before, after in changes:
        if before is None:
            administration.add(after, actor)
        else:
            attached = administration.attachments.of(after.id)
            administration.put(after, actor, before, attached)
        sys.stdout.write(f"{'created' if before is None else 'changed'}: {after.name}\n")
