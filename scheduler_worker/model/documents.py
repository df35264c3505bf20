"""What administrators have in the book of documents: policies, attachments of clusters, and units.

Built-in policies and units are code and not in it.
"""

from collections.abc import Mapping

import msgspec

from scheduler_worker.errors import NotFound
from scheduler_worker.model.policies import ClusterPolicy, UnitFacts

NEW = 0
"""The version of what is not stored yet."""


class StoredPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy and what surrounds it. ``document.version`` grows with every edit."""

    document: ClusterPolicy
    is_locked: bool = False
    """Built in: it can be read and attached, not changed."""
    is_default: bool = False
    changed_by: str = ""
    changed_at_s: float = 0.0
    """Seconds since the epoch; 0: not known."""


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


class Documents(msgspec.Struct, frozen=True):
    """All of them; a change replaces a mapping by another one, and alters none."""

    policies: Mapping[str, StoredPolicy] = {}
    """By id."""
    attachments: Mapping[str, Attachment] = {}
    """By cluster."""
    units: Mapping[str, StoredUnit] = {}
    """User units, by id."""

    def policy(self, policy_id: str) -> StoredPolicy:
        """Raises NotFound."""
        stored = self.policies.get(policy_id)
        if stored is None:
            raise NotFound("policy", policy_id)
        return stored

    def clusters_of(self, policy_id: str) -> list[str]:
        """The clusters that are attached to a policy, by name."""
        attachments = self.attachments.values()
        return sorted(each.cluster for each in attachments if each.policy_id == policy_id)
