"""Policies as YAML text and back, and changes of stored ones: found, shown as a diff, and made."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from scheduler_worker.cli.commands import say
from scheduler_worker.cli.files import parsed, written
from scheduler_worker.cli.policy_names import document_of
from scheduler_worker.errors import ClusterPolicyError, ConfigError, Invalid
from scheduler_worker.model.policies import ClusterPolicy, from_plain, to_plain
from scheduler_worker.operations.policies import (
    ChangedText,
    NewPolicy,
    PolicyText,
    PolicyView,
    check_policy,
    create_policy,
    put_policy,
)

if TYPE_CHECKING:
    from scheduler_worker.client import OperationsClient

_FIELDS = ("id", "name", "description", "filters", "weights", "balance", "selector", "parameters")


class PolicyEntry(NamedTuple):
    """A policy of a file; without an id there it has a new one."""

    document: ClusterPolicy
    has_id: bool


def write_policies(policies: Sequence[ClusterPolicy]) -> str:
    """The policies as YAML, without their versions, which grow with each change."""
    plain = []
    for policy in policies:
        fields = to_plain(policy)
        plain.append({name: fields[name] for name in _FIELDS if name in fields})
    return written({"policies": plain})


def units_of(policies: Iterable[PolicyEntry]) -> set[str]:
    """The names of the units that the policies use."""
    from scheduler_worker.service.documents.policy_rules import uses  # slow to import

    return {use.unit for policy in policies for _, use in uses(policy.document)}


def read_policies(text: str, place: str) -> list[PolicyEntry]:
    """The policies of a YAML text.

    Raises ConfigError: it is no YAML, or a field is missing, unknown or out of bounds; names the
    file, the policy and the field.
    """
    plain = parsed(text, place)
    if not isinstance(plain, dict) or set(plain) != {"policies"}:
        raise ConfigError(f"{place}: expected one field `policies` with a list of policies")
    listed = plain["policies"]
    if not isinstance(listed, list):
        raise ConfigError(f"{place}: policies: expected a list")
    entries = [_given(item, f"{place}: policies[{number}]") for number, item in enumerate(listed)]
    for what, values in (
        ("id", [entry.document.id for entry in entries]),
        ("name", [entry.document.name.casefold() for entry in entries]),
    ):
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise ConfigError(f"{place}: two policies have the {what} {twice[0]!r}")
    return entries


def _given(plain: Any, place: str) -> PolicyEntry:
    if not isinstance(plain, dict):
        raise ConfigError(f"{place}: expected a policy with the fields {', '.join(_FIELDS)}")
    name = f"{place} {plain['name']}" if isinstance(plain.get("name"), str) else place
    if "version" in plain:
        raise ConfigError(f"{name}: version: grows by itself; leave it out")
    try:
        document = from_plain({"id": str(uuid.uuid4()), **plain, "version": 1})
    except ClusterPolicyError as error:
        raise ConfigError(f"{name}: {error}; write numbers in quotes where texts are") from None
    return PolicyEntry(document, "id" in plain)


# Changes


class PolicyChange(NamedTuple):
    """A policy as it is stored (None: it is not), and as it is to be."""

    before: PolicyView | None
    after: ClusterPolicy


def between(stored: Sequence[PolicyView], entries: Sequence[PolicyEntry]) -> list[PolicyChange]:
    """What differs, in the order given. Raises Invalid for a built-in policy."""
    changes = []
    for entry in entries:
        after = entry.document
        before = _stored(stored, entry)
        if before is not None:
            if before.is_locked:
                raise Invalid(after.name, "is a built-in policy; give it another name and id")
            after = structs.replace(after, id=before.id, version=before.version)
        if before is None or after != document_of(before):
            changes.append(PolicyChange(before, after))
    return changes


def _stored(stored: Sequence[PolicyView], entry: PolicyEntry) -> PolicyView | None:
    if entry.has_id:
        return next((policy for policy in stored if policy.id == entry.document.id), None)
    key = entry.document.name.casefold()
    return next((policy for policy in stored if policy.name.casefold() == key), None)


def show(client: OperationsClient, changes: Sequence[PolicyChange]) -> None:
    """Check each change, and print it. Raises Invalid for one that is refused."""
    for before, after in changes:
        found = client.call(check_policy, changed_text(after))
        if found.problem is not None:
            raise Invalid(found.field or after.name, found.problem)
        now = document_of(before) if before else None
        name = f"{now.name}, version {now.version}" if now else "not stored"
        say(*difference(now, after, name, after.name))


def difference(
    before: ClusterPolicy | None, after: ClusterPolicy, before_name: str, after_name: str
) -> Iterator[str]:
    """The lines of a diff between two policies as YAML."""
    old = write_policies([before]) if before else ""
    yield from difflib.unified_diff(
        old.split("\n")[1:-1],
        write_policies([after]).split("\n")[1:-1],
        fromfile=before_name,
        tofile=after_name,
        lineterm="",
    )


def make(client: OperationsClient, changes: Sequence[PolicyChange]) -> None:
    """Make the changes, and print what was done; a policy that changed meanwhile is refused."""
    for before, after in changes:
        if before is None:
            client.call(create_policy, NewPolicy(id=after.id, **_text_of(after)))
        else:
            client.call(put_policy, changed_text(after, before.version))
        say(f"{'created' if before is None else 'changed'}: {after.name}")


def changed_text(policy: ClusterPolicy, seen: int | None = None) -> ChangedText:
    """The text of a policy that was ``seen`` in this version; None: any will do."""
    return ChangedText(id=policy.id, version=seen, **_text_of(policy))


def _text_of(policy: ClusterPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in PolicyText.__struct_fields__}
