"""External units in the worker's own form: a filter and a weight that read facts of hosts.

The same classes run inside the worker where a package registers them; see docs/external-units.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, Weigher


class Headroom(msgspec.Struct, frozen=True):
    """How much memory stays free on every host, in MiB."""

    headroom_mb: Annotated[int, msgspec.Meta(ge=0)] = 1024


class MemoryHeadroom(Filter):
    """Passes hosts that have memory for the VM and keep ``headroom_mb`` free."""

    parameters_type = Headroom
    host_facts = ("free_ram_mb",)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        needed_mb = spec_obj.flavor.memory_mb + self.parameters.headroom_mb
        return bool(host_state.free_ram_mb >= needed_mb)


class LeastMemoryUsed(Weigher):
    """Prefers hosts of whose memory the least is in use; the cost is in percent."""

    lower_is_better = True
    minval = 0.0
    maxval = 100.0
    host_facts = ("free_ram_mb", "total_usable_ram_mb")

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        total = hosts.total_usable_ram_mb
        used: Values = 100.0 * (total - hosts.free_ram_mb) / total
        return used
