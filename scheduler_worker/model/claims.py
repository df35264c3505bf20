"""Claims, reservations and the fencing token that guards them.

A decision makes a :class:`Claim`; the shared state stores it as a :class:`Reservation`, which ends
when the host's reported use includes its instance (absorbed), when it is released, or expires.

::

    claim -> held -> confirmed -> absorbed
              |          `-----> expired
              |-> absorbed | released | expired
"""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType, structs

from scheduler_worker.model.providers import ProviderUse
from scheduler_worker.model.topology import NUMAUse, PCIPools
from scheduler_worker.model.virt import VirtUse

RESERVATION_SCHEMA = 1
MAX_REPEATED_FOR = 8


class FencingToken(msgspec.Struct, frozen=True, gc=False, order=True):
    """Proves at a commit who holds a cluster's lock; later holders have larger numbers.

    ``epoch`` identifies the store's data: numbers of different epochs cannot be compared, and the
    store refuses a commit from another epoch.
    """

    number: int
    epoch: str


class Resources(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one instance takes of a host: as a whole, of its NUMA cells, devices and providers."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    numa: tuple[NUMAUse, ...] | None = None
    pci: PCIPools | None = None
    providers: tuple[ProviderUse, ...] = ()
    """What it takes of resource providers: of the host's own inventories, and of those below."""
    virt: VirtUse | UnsetType = UNSET
    """What it takes beside these, for requests that say so in their field ``vm``."""

    @property
    def of_flavor(self) -> "Resources":
        """The part that is the same on every host."""
        return Resources(vcpus=self.vcpus, memory_mb=self.memory_mb, disk_mb=self.disk_mb)


class ReportedUse(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a host reports as used, or a part of it."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0


reservation_id: Callable[[str, str], str] = "{}@{}".format
"""The id of the reservation of an instance on a host, of their uuids: there is at most one."""


class ForInstance(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A host for an instance, and the request that it was chosen for."""

    instance_uuid: str
    host_uuid: str
    host: str
    nodename: str
    request_id: str = ""
    project_id: str | None = None


class ChosenHost(ForInstance, frozen=True, gc=False, kw_only=True):
    """A host for an instance, with what the instance takes of it."""

    resources: Resources

    @property
    def id(self) -> str:
        """One for each instance and host; reserving the same again replaces it."""
        return reservation_id(self.instance_uuid, self.host_uuid)


class Claim(ChosenHost, frozen=True, gc=False, kw_only=True):
    """A decided host for an instance, not stored; ``host_version`` of its record was looked at."""

    host_version: int
    is_pending: ClassVar[bool] = True
    """Always: the instance does not exist yet."""
    created_at_s: ClassVar[float] = math.inf
    """Later than everything that was reported."""


class Reservation(ChosenHost, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A stored claim that expires. All times are seconds of the *store's* clock."""

    created_at_s: float
    expires_at_s: float
    token: int
    state: Literal["held", "confirmed"] = "held"
    announced_at_s: float | None = None
    """When the instance was announced or confirmed; use measured later includes it."""
    listed_at_s: float | None = None
    """When a report first listed the instance; its use may not have included it yet."""
    allocated_at_s: float | None = None
    """When the instance was first known to be a consumer of the providers it takes from."""
    other_use: ReportedUse | None = None
    """The host's reported use that no known instance explained when it was decided.

    None in records of an earlier release. See :mod:`scheduler_worker.scheduling.absorption`.
    """
    schema: int = RESERVATION_SCHEMA
    repeated_for: tuple[str, ...] = ()
    """Other requests that were answered with it, the latest :data:`MAX_REPEATED_FOR`."""

    def answers(self, request_id: str) -> bool:
        """Whether this request was answered with it; False for a request without an id."""
        return bool(request_id) and request_id in (self.request_id, *self.repeated_for)

    def repeated(self, request_id: str) -> "Reservation":
        """The same, recorded as an answer to this request too."""
        if not request_id or self.answers(request_id):
            return self
        requests = (*self.repeated_for, request_id)[-MAX_REPEATED_FOR:]
        return structs.replace(self, repeated_for=requests)

    @property
    def is_pending(self) -> bool:
        """Whether the instance was not reported to exist yet: its resources are pending."""
        return self.announced_at_s is None and self.listed_at_s is None
