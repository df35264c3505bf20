"""How many instances, and how many of them under way, a host may have."""

from __future__ import annotations

from typing import ClassVar

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class _CountFilter(Filter):
    """Passes hosts with fewer of what ``column`` counts than the option ``most`` says."""

    reads_request = False
    column: ClassVar[str]
    most: ClassVar[str]
    what: ClassVar[str]

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        fewer: Mask = hosts.column(self.column) < self.most_of_all(hosts)
        return fewer

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(getattr(host_state, self.column) < self.most_of(host_state))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        found = getattr(host_state, self.column)
        return f"has {found} {self.what}, {self.most_of(host_state)} may be"

    @property
    def default(self) -> int:
        """What the option says."""
        return int(getattr(self.options, self.most))

    def most_of_all(self, hosts: Hosts) -> Values | int:
        """How many each host may have, or one number for all."""
        return self.default

    def most_of(self, host_state: HostState) -> int:
        """How many one host may have."""
        return self.default


class _AggregateCountFilter(_CountFilter):
    """The same, where the aggregate metadata key of the option's name overrides the option."""

    def most_of_all(self, hosts: Hosts) -> Values | int:
        if self.most not in hosts.metadata_keys:
            return self.default
        return hosts.derived((type(self).__name__, self.default), self.most_of, "f8")

    def most_of(self, host_state: HostState) -> int:
        return lowest(raw_values(host_state.aggregates, self.most), self.default, int)


class IoOpsFilter(_CountFilter):
    """Passes hosts with fewer instances that are built, resized, rescued and so on than
    ``max_io_ops_per_host``.

    Reads: ``num_io_ops``.
    Options: ``max_io_ops_per_host``.
    Example: ``max_io_ops_per_host = 4``
    """

    column = "num_io_ops"
    most = "max_io_ops_per_host"
    what = "I/O operations under way"


class AggregateIoOpsFilter(_AggregateCountFilter, IoOpsFilter):
    """IoOpsFilter; the smallest ``max_io_ops_per_host`` of the host's aggregates overrides the
    option.

    Metadata: ``max_io_ops_per_host``.
    Example: aggregate metadata ``max_io_ops_per_host=20`` for hosts with fast disks.
    """


class NumInstancesFilter(_CountFilter):
    """Passes hosts with fewer instances than ``max_instances_per_host``.

    Reads: ``num_instances``.
    Options: ``max_instances_per_host``.
    Example: ``max_instances_per_host = 20``
    """

    column = "num_instances"
    most = "max_instances_per_host"
    what = "instances"


class AggregateNumInstancesFilter(_AggregateCountFilter, NumInstancesFilter):
    """NumInstancesFilter; the smallest ``max_instances_per_host`` of the host's aggregates
    overrides the option.

    Metadata: ``max_instances_per_host``.
    Example: aggregate metadata ``max_instances_per_host=1`` for hosts that nobody shares.
    """
