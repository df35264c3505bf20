"""Capacity: how many more instances fit, and what keeps more from fitting."""

import msgspec

from scheduler_worker.model.policy_references import PolicyReference


class LimitingResource(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts whose capacity one resource, or one filter, limits."""

    hosts: int = 0
    """Hosts on which it runs out first."""
    full_hosts: int = 0
    """The hosts that take no instance any more."""


class RejectedHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that a filter rejects which does not judge capacity, such as ComputeFilter."""

    hosts: int = 0
    instances: int | None = 0
    """What they would take by the filters that judge capacity; null: without a bound."""


class ClusterCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many more instances of one kind a cluster takes, each in a request of its own."""

    cluster: str
    policy: PolicyReference | None = None
    instances: int | None = 0
    """Null: some host takes any number, as no filter of the policy bounds it."""
    is_exact: bool = True
    """False: an upper bound, as not every host was filled to the end."""
    hosts: int = 0
    fitting_hosts: int = 0
    """Hosts that take at least one."""
    runs_out_first: str | None = None
    """What limits most of the hosts that no other filter rejects."""
    zones: dict[str, int | None] = {}
    limited_by: dict[str, LimitingResource] = {}
    """Resource class, or filter -> the hosts that it limits; that of most hosts first."""
    lost_to: dict[str, RejectedHosts] = {}
    """Filter -> the hosts that it rejects, in the order of the policy."""
    problem: str | None = None
    """Why nothing could be counted."""


class FlavorCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many more instances of one flavor fit, in all clusters."""

    name: str
    instances: int | None
    """Null: any number. Clusters with a ``problem`` add nothing."""
    is_exact: bool
    runs_out_first: str | None
    clusters: tuple[ClusterCapacity, ...]
