"""A policy store in memory, for unit tests; it passes the contract suite of the SQL stores."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec import structs

from scheduler_worker.errors import EditConflict, InUse, NameTaken, NotFound
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.policy_store import (
    EVERYTHING,
    MAX_PAGE,
    NEW,
    Attachment,
    AuditEntry,
    AuditFilter,
    StoredPolicy,
    StoredUnit,
    marker_number,
)


class MemoryPolicyStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._policies: dict[str, StoredPolicy] = {}
        self._attachments: dict[str, Attachment] = {}
        self._units: dict[str, StoredUnit] = {}
        self._audit: list[AuditEntry] = []
        self._recorded = 0

    def policies(self) -> list[StoredPolicy]:
        with self._lock:
            return sorted(self._policies.values(), key=lambda each: each.document.name.casefold())

    def policy(self, policy_id: str) -> StoredPolicy | None:
        return self._policies.get(policy_id)

    def add(self, policy: StoredPolicy, audit: AuditEntry) -> None:
        with self._lock:
            found = self._policies.get(policy.document.id)
            if found is not None:
                raise EditConflict(
                    f"Policy {found.document.name}", found.changed_by, found.document.version
                )
            self._check_name(policy)
            self._policies[policy.document.id] = policy
            self._append(audit)

    def replace(self, policy: StoredPolicy, *, expected_version: int, audit: AuditEntry) -> None:
        with self._lock:
            self._expected(policy.document.id, expected_version)
            self._check_name(policy)
            self._policies[policy.document.id] = policy
            self._append(audit)

    def remove(
        self, policy_id: str, *, expected_version: int | None = None, audit: AuditEntry
    ) -> None:
        with self._lock:
            found = self._expected(policy_id, expected_version)
            users = sorted(
                each.cluster for each in self._attachments.values() if each.policy_id == policy_id
            )
            if users:
                raise InUse(f"Policy {found.document.name}", users)
            del self._policies[policy_id]
            self._append(audit)

    def attachments(self) -> list[Attachment]:
        with self._lock:
            return [self._attachments[name] for name in sorted(self._attachments)]

    def attachment(self, cluster: str) -> Attachment | None:
        return self._attachments.get(cluster)

    def attach(self, attachment: Attachment, *, expected_version: int, audit: AuditEntry) -> None:
        with self._lock:
            now = self._attachments.get(attachment.cluster)
            if (now.version if now else NEW) != expected_version:
                raise EditConflict(
                    f"The policy of cluster {attachment.cluster}",
                    now.changed_by if now else "",
                    now.version if now else NEW,
                )
            if not attachment.is_built_in and attachment.policy_id not in self._policies:
                raise NotFound("policy", attachment.policy_id)
            self._attachments[attachment.cluster] = attachment
            self._append(audit)

    def units(self) -> list[StoredUnit]:
        with self._lock:
            return sorted(self._units.values(), key=lambda each: (each.name, each.kind))

    def put_units(self, units: Sequence[StoredUnit]) -> None:
        with self._lock:
            self._units.update({each.id: each for each in units})

    def remove_unit(self, unit_id: str, audit: AuditEntry) -> None:
        with self._lock:
            found = self._units.get(unit_id)
            if found is None:
                raise NotFound("unit", unit_id)
            users = sorted(
                each.document.name
                for each in self._policies.values()
                if (found.kind, found.name) in _uses(each.document)
            )
            if users:
                raise InUse(f"Unit {found.name}", users)
            del self._units[unit_id]
            self._append(audit)

    def record(self, entry: AuditEntry) -> None:
        with self._lock:
            self._append(entry)

    def audit(
        self, wanted: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        begin = marker_number("0" if after is None else after)
        found = [each for each in self._audit if int(each.id) > begin and _is_wanted(each, wanted)]
        return found[: min(limit, MAX_PAGE)]

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        with self._lock:
            old = [each.id for each in self._audit[:limit] if each.at_s < before_s]
            self._audit = [each for each in self._audit if each.id not in old]
            return len(old)

    def close(self) -> None:
        pass

    def _append(self, entry: AuditEntry) -> None:
        self._recorded += 1
        self._audit.append(structs.replace(entry, id=str(self._recorded)))

    def _expected(self, policy_id: str, version: int | None) -> StoredPolicy:
        found = self._policies.get(policy_id)
        if found is None:
            raise NotFound("policy", policy_id)
        if version not in {None, found.document.version}:
            raise EditConflict(
                f"Policy {found.document.name}", found.changed_by, found.document.version
            )
        return found

    def _check_name(self, policy: StoredPolicy) -> None:
        for each in self._policies.values():
            if each.document.id != policy.document.id and (
                each.document.name.casefold() == policy.document.name.casefold()
            ):
                raise NameTaken(policy.document.name)


def _uses(document: ClusterPolicy) -> set[tuple[str, str]]:
    found = {("filter", each.unit) for each in document.filters}
    found |= {("weight", each.unit) for each in document.weights}
    found.add(("selector", document.selector.unit))
    if document.balance is not None:
        found.add(("balance", document.balance.unit))
    return found


def _is_wanted(entry: AuditEntry, wanted: AuditFilter) -> bool:
    return (
        wanted.user in {None, entry.user}
        and wanted.action in {None, entry.action}
        and wanted.subject in {None, entry.subject}
        and wanted.result in {None, entry.result}
        and (wanted.since_s is None or entry.at_s >= wanted.since_s)
        and (wanted.until_s is None or entry.at_s < wanted.until_s)
    )
