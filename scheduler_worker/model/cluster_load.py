"""The load of a cluster's hosts and VMs, and what a balance proposes to do about it.

Values only. Memory is in MiB; loads are in percent of one CPU, but in percent of a shared CPU where
a name says ``percent``. Times are seconds of the store's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from scheduler_worker.model.host_power import UP, HostPower, PowerState
from scheduler_worker.model.host_records import HostState
from scheduler_worker.model.virt_hosts import VCPU_LOAD_PERCENT


class VmLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A VM that runs on a host."""

    id: str
    vcpus: int = 1
    memory_mb: float = 0
    cpu_percent: float | None = None
    """Mean use of its vCPUs; None: it has no statistics."""
    can_move: bool = True
    """False for a VM that is pinned, is being moved, or must stay for another reason."""
    highly_available: bool = False

    @property
    def load(self) -> float:
        """The use of all its vCPUs; an assumed one where it has no statistics."""
        each = VCPU_LOAD_PERCENT if self.cpu_percent is None else self.cpu_percent
        return each * self.vcpus


class HostLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A host with its load and its VMs."""

    name: str
    load: float | None = None
    """The use of all CPUs that VMs share; None: it has no statistics."""
    shared_cpus: int = 0
    free_mb: float = 0
    """The memory that may still be given to VMs."""
    num_vms: int = 0
    vms: tuple[VmLoad, ...] = ()
    """Those that are known; there may be more."""
    shared_vcpus: int = 0
    """The vCPUs of all VMs that share its CPUs."""
    out_of_bounds_since_s: float | None = None
    """Since when its load has been above the upper or below the lower bound; None: it is not."""
    is_manager: bool = False
    """Whether it has the role of storage pool manager."""
    is_settled: bool = True
    """Whether no VM is about to arrive, leave, or be saved or restored."""
    state: HostState = "up"
    """``up``: it may take VMs."""
    power: HostPower = UP

    @property
    def load_percent(self) -> int | None:
        """The mean use of a shared CPU, rounded up; None: unknown."""
        mean = self.mean_percent()
        return None if mean is None else math.ceil(mean)

    def mean_percent(self, added: float = 0.0) -> float | None:
        """The mean use of a shared CPU with this much load more; None: unknown."""
        if self.load is None or self.shared_cpus <= 0:
            return None
        return (self.load + added) / self.shared_cpus


class ClusterLoad(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts of a cluster, also those that do not run."""

    hosts: tuple[HostLoad, ...] = ()

    @property
    def settled(self) -> list[HostLoad]:
        """The hosts that balances look at: up, and taking part in no migration."""
        return [each for each in self.hosts if each.state == "up" and each.is_settled]


class ProposedMigration(msgspec.Struct, frozen=True, kw_only=True):
    """Which VM may go where, and why."""

    vm: str
    source: str
    destinations: tuple[str, ...]
    """The hosts that may take it."""
    reason: str


class Migration(ProposedMigration, frozen=True, kw_only=True):
    """A proposal to move a VM."""

    empties: bool = False
    """Whether the source is to be empty in the end, so that it can be switched off."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """The hosts to choose from: the VM's own is one, so that it may stay after all."""
        return (*self.destinations, self.source)


class PowerAction(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal to bring a host into another state."""

    host: str
    to: PowerState
    reason: str


class BegunMigration(msgspec.Struct, frozen=True):
    """A migration that was begun."""

    source: str
    destination: str
    begun_at_s: float


class BalanceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a balance has to remember of a cluster from one run to the next."""

    moves: Mapping[str, BegunMigration] = {}
    """The latest begun migration of each VM, by its id."""
    seen_since_s: Mapping[str, float] = {}
    """Since when each host has been up without interruption, as far as the balance remembers."""

    def with_move(self, vm: str, source: str, destination: str, now_s: float) -> BalanceMemory:
        """After a migration has begun."""
        moves = {**self.moves, vm: BegunMigration(source, destination, now_s)}
        return structs.replace(self, moves=moves)

    def without_moves_before(self, begun_at_s: float) -> BalanceMemory:
        """Without migrations that began at this time or earlier."""
        kept = {vm: move for vm, move in self.moves.items() if move.begun_at_s > begun_at_s}
        return structs.replace(self, moves=kept)


class BalancePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a balance proposes; nothing is done yet."""

    migrations: Sequence[Migration] = ()
    """Alternatives: the best one first, to be tried until one begins."""
    power: PowerAction | None = None
    nothing_because: str = ""
    """Why no migration is proposed; empty where one is."""
    memory: BalanceMemory = BalanceMemory()
    """What the balance is to be given the next time."""
