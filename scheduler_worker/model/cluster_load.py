"""The load of a cluster's hosts and VMs, what a balance proposes to do about it, and its rounds.

Values only. Memory is in MiB; loads are in percent of one CPU, but in percent of a shared CPU where
a name says ``percent``. Times are seconds of the store's clock.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import structs

from scheduler_worker.model.host_records import UP, HostPower, HostState, PowerState
from scheduler_worker.model.virt import VCPU_LOAD_PERCENT


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
        percent = VCPU_LOAD_PERCENT if self.cpu_percent is None else self.cpu_percent
        return percent * self.vcpus


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
    """The known VMs; there may be more."""
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
    """All hosts of a cluster, also hosts that do not run."""

    hosts: tuple[HostLoad, ...] = ()

    @property
    def settled(self) -> list[HostLoad]:
        """The hosts that balances look at: up, and taking part in no migration."""
        return [host for host in self.hosts if host.state == "up" and host.is_settled]


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

    def with_move(self, vm: str, source: str, destination: str, now_s: float) -> "BalanceMemory":
        """After a migration has begun."""
        moves = {**self.moves, vm: BegunMigration(source, destination, now_s)}
        return structs.replace(self, moves=moves)

    def without_moves_before(self, begun_at_s: float) -> "BalanceMemory":
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


Mode = Literal["off", "dry_run", "on"]
"""``off``: the balance is not asked. ``dry_run``: it says what it would do. ``on``: it does it."""
MODES: tuple[str, ...] = get_args(Mode)


class BalancingSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The mode that an operator has set for a cluster."""

    mode: Mode
    policy_id: str
    """The policy that was in force then: ``on`` holds for no other."""

    def applies(self, policy_id: str) -> bool:
        """Whether it holds under a policy. A balance that nobody has seen acting is not on."""
        return self.mode != "on" or self.policy_id == policy_id


def mode_in_force(switch: BalancingSwitch | None, policy_id: str, default: Mode) -> Mode:
    """The mode of a cluster: as it was set, if that holds, else the workers' default."""
    return switch.mode if switch is not None and switch.applies(policy_id) else default


class Considered(ProposedMigration, frozen=True, kw_only=True):
    """A proposed migration with the first destinations, and what became of it."""

    more_destinations: int = 0
    """How many more there are."""
    outcome: str
    """``asked for``, ``would be asked for``, or why not."""


class ConsideredPower(PowerAction, frozen=True, kw_only=True):
    """A proposed power action, and what became of it."""

    outcome: str
    """As that of a migration."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a balance."""

    at_s: float
    """By the store's clock."""
    policy: str
    """Name and version, as ``name@version``."""
    balance: str
    """The name of the unit."""
    mode: Mode
    nothing_because: str = ""
    """Why nothing is asked for; empty where a migration is, or would be."""
    considered: tuple[Considered, ...] = ()
    """The proposals, the best one first, up to the proposal that was requested."""
    power: tuple[ConsideredPower, ...] = ()
    """The proposed power actions, up to the action that was requested; mostly none."""
    unprotected_hosts: tuple[str, ...] = ()
    """Those whose highly available VMs would not all find room on the others."""
    protection_checked_at_s: float = 0.0
    busy_hosts: tuple[str, ...] = ()
    """Those with a load at the upper bound or above."""
    seen_since_s: Mapping[str, float] = {}
    """What the balance remembers of hosts."""


class Proposals(Sequence[Migration]):
    """The proposals of one plan, the best one first. Each is found once, and only when it is read.

    So a round that reads twenty pays for twenty. The length, and an index from the end, find all.
    """

    def __init__(self, migrations: Iterable[Migration]) -> None:
        self._unread = iter(migrations)
        self._read: list[Migration] = []

    def __getitem__(self, at: Any) -> Any:
        stop = at.stop if isinstance(at, slice) else at + 1
        self._find(stop if stop is not None and stop > 0 else None)
        return self._read[at]

    def __len__(self) -> int:
        self._find(None)
        return len(self._read)

    def __bool__(self) -> bool:
        self._find(1)
        return bool(self._read)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal ones need not be the same

    def _find(self, count: int | None) -> None:
        """Have this many, if there are so many; None: all."""
        more = None if count is None else max(0, count - len(self._read))
        self._read += itertools.islice(self._unread, more)
