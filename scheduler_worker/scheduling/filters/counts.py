"""Filters that limit a host's instances, and its I/O operations under way."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import Filter


class IoOpsParameters(msgspec.Struct, frozen=True):
    """The most I/O operations a host may have under way."""

    max_io_ops_per_host: Annotated[int, Opt(min=0, mutable=True)] = 8
    """IoOpsFilter: a host with this many instances being built, resized, rescued and so on takes no
    more. The aggregate metadata key of that name overrides it for AggregateIoOpsFilter."""


class NumInstancesParameters(msgspec.Struct, frozen=True):
    """The most instances a host may have."""

    max_instances_per_host: Annotated[int, Opt(min=1, mutable=True)] = 50
    """NumInstancesFilter: a host with this many instances takes no more. The aggregate metadata key
    of that name overrides it for AggregateNumInstancesFilter."""


class _CountFilter(Filter):
    """Passes hosts whose ``column`` is below the parameter named ``most``."""

    momentary = True
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
        return f"has {found} {self.what}, {self.most_of(host_state)} are allowed"

    @property
    def default(self) -> int:
        """The value of the option."""
        return int(getattr(self.parameters, self.most))

    def most_of_all(self, hosts: Hosts) -> Values | int:
        """How many each host may have, or one number for all."""
        return self.default

    def most_of(self, host_state: HostState) -> int:
        """How many one host may have."""
        return self.default


class _AggregateCountFilter(_CountFilter):
    """The same, with the aggregate metadata key of the option's name in place of the option."""

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
    parameters_type = IoOpsParameters
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
    parameters_type = NumInstancesParameters
    what = "instances"


class AggregateNumInstancesFilter(_AggregateCountFilter, NumInstancesFilter):
    """NumInstancesFilter; the smallest ``max_instances_per_host`` of the host's aggregates
    overrides the option.

    Metadata: ``max_instances_per_host``.
    Example: aggregate metadata ``max_instances_per_host=1`` for hosts with a single instance.
    """
