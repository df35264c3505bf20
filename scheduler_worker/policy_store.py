"""The port of the policies' system of record: what administrators edit, beside the shared state.

The store keeps the policies that users made, which cluster is attached to which policy, user units,
and an audit of every change. Built-in policies and units are code and not in it. Each method is one
transaction: it is done whole with its audit entry, or not at all. ``tests/contract`` tests every
implementation.

Workers never ask this store while they decide: ``service/policies/attachments.py`` puts the
document in force for each cluster into the shared state.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.policies import ClusterPolicy, UnitFacts
from scheduler_worker.wording import cut

MAX_MARKER = 2**63 - 1
NAME = 255
"""Characters of a name, at most."""
NEW = 0
"""The version of what is not stored yet."""
MAX_PAGE = 1000
"""Upper bound of the audit entries that are read at once."""


class StoredPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy and what surrounds it. ``document.version`` grows with every edit."""

    document: ClusterPolicy
    is_locked: bool = False
    """Built in: it can be read and attached, not changed."""
    is_default: bool = False
    changed_by: str = ""
    changed_at_s: float = 0.0
    """Seconds since the epoch."""


class StoredUnit(UnitFacts, frozen=True, kw_only=True):
    """A unit that users installed, in one of its kinds; disabled once it is not installed."""

    kind: str
    """A value of ``UnitKind``."""
    parameters: Mapping[str, str] = {}
    """Parameter name -> regex of its values; empty where any text is one."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy a cluster has, with the cluster's own values of the policy's parameters.

    A cluster that was never attached has none. One that is returned to the policy of the workers'
    options stays attached to that built-in policy, so its version goes on growing.
    """

    cluster: str
    policy_id: str
    is_built_in: bool = False
    parameters: Mapping[str, str] = {}
    version: int = 1
    changed_by: str = ""
    changed_at_s: float = 0.0


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or one that was refused: who, from where, what, before and after."""

    at_s: float
    user: str
    origin: str = ""
    """From where, such as an address or the name of a command."""
    action: str
    """What was to be done, such as ``policy.update``."""
    subject: str
    """The id of a policy or unit, or the name of a cluster."""
    result: Literal["done", "refused"] = "done"
    reason: str = ""
    """Why it was refused."""
    before: str | None = None
    """JSON of what was stored before; None: there was nothing."""
    after: str | None = None
    id: str = ""
    """Given by the store, in the order of writing; the marker of the next page."""


_LONGEST = {"user": NAME, "origin": NAME, "action": 64, "subject": NAME, "reason": 4096}


def shortened(entry: AuditEntry) -> AuditEntry:
    """The entry with its long texts cut, so that it is stored whatever they are."""
    cuts = {name: cut(getattr(entry, name), most) for name, most in _LONGEST.items()}
    return msgspec.structs.replace(entry, **cuts)


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of the audit are wanted; None: any."""

    user: str | None = None
    action: str | None = None
    subject: str | None = None
    result: Literal["done", "refused"] | None = None
    since_s: float | None = None
    """Entries of this time and later, in seconds since the epoch."""
    until_s: float | None = None
    """Entries before this time."""

    def admits(self, entry: AuditEntry) -> bool:
        """Whether an entry is wanted."""
        return (
            all(
                wanted is None or wanted == getattr(entry, name)
                for name in ("user", "action", "subject", "result")
                for wanted in [getattr(self, name)]
            )
            and (self.since_s is None or entry.at_s >= self.since_s)
            and (self.until_s is None or entry.at_s < self.until_s)
        )


EVERYTHING = AuditFilter()


def marker_number(marker: str) -> int:
    """The number of an audit entry's id. Raises RequestError for a text that is none."""
    if marker.isascii() and marker.isdigit() and len(marker) < 20 and int(marker) <= MAX_MARKER:
        return int(marker)
    raise RequestError("marker", f"{cut(marker)!r} is no marker; use the id of an audit entry")


class PolicyStore(Protocol):
    """Keeps policies, attachments, user units and the audit.

    Every method raises PolicyStoreUnavailable when the store fails; then a change is made whole or
    not at all, which of both is unknown only if the connection broke during the commit.
    """

    def policies(self) -> list[StoredPolicy]:
        """All policies, by name."""

    def policy(self, policy_id: str) -> StoredPolicy | None:
        """The policy with this id."""

    def add(self, policy: StoredPolicy, audit: AuditEntry) -> None:
        """Store a new policy.

        Raises:
            NameTaken: a stored policy has this name, in any letter case.
            EditConflict: a policy of this id is stored.
        """

    def replace(
        self,
        policy: StoredPolicy,
        *,
        expected_version: int,
        clusters: Collection[str] | None = None,
        audit: AuditEntry,
    ) -> None:
        """Replace the policy of the same id, if it still has the expected version.

        ``clusters``, which the editor may change, may have the policy now, and no other. None: any.

        Raises:
            EditConflict: it has another version, or another cluster was attached to it.
            NameTaken: as :meth:`add`.
            NotFound: it is not stored.
        """

    def remove(
        self, policy_id: str, *, expected_version: int | None = None, audit: AuditEntry
    ) -> None:
        """Remove a policy.

        Raises:
            InUse: clusters are attached to it; names them.
            EditConflict: it has another version than the expected one.
            NotFound: it is not stored.
        """

    def attachments(self) -> list[Attachment]:
        """All attachments, by cluster."""

    def attachment(self, cluster: str) -> Attachment | None:
        """The attachment of a cluster."""

    def attach(self, attachment: Attachment, *, expected_version: int, audit: AuditEntry) -> None:
        """Store an attachment in place of the cluster's last one (:data:`NEW`: there is none).

        Raises:
            EditConflict: the cluster's attachment has another version.
            NotFound: the policy is not stored, and not built in.
        """

    def units(self) -> list[StoredUnit]:
        """All user units, by name and kind."""

    def put_units(self, units: Sequence[StoredUnit]) -> None:
        """Store user units, in place of those with the same ids."""

    def remove_unit(self, unit_id: str, audit: AuditEntry) -> None:
        """Remove a user unit. Raises InUse, which names its policies; NotFound."""

    def record(self, entry: AuditEntry) -> None:
        """Add an entry that belongs to no change: an attempt that was refused."""

    def audit(
        self, criteria: AuditFilter = EVERYTHING, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Up to ``limit`` (at most :data:`MAX_PAGE`) entries after a marker, oldest first.

        Raises RequestError for a marker that no entry can have.
        """

    def purge_audit(self, *, before_s: float, limit: int) -> int:
        """Delete entries of an earlier time among the ``limit`` oldest; how many."""

    def close(self) -> None:
        """Close the connections."""
