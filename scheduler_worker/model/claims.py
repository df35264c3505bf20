"""Claims, reservations and the token that guards them.

A decision *wishes* (:class:`Claim`), the state *promises* (:class:`Reservation`), and the promise
ends: absorbed by the host's report, released, or expired.

::

    wished -> held -> confirmed -> absorbed
               |          `-----> expired
               |-> absorbed | released | expired
"""

from __future__ import annotations

from typing import Literal

import msgspec

from scheduler_worker.model.providers import ProviderUse
from scheduler_worker.model.topology import NUMAUse, PCIPools

PROMISE_SCHEMA = 1


class FencingToken(msgspec.Struct, frozen=True, gc=False, order=True):
    """What a holder of a cluster's lock shows at its commit; later holders have larger numbers.

    ``epoch`` names the life of the store: numbers of different epochs cannot be compared, and a
    commit from another epoch is refused.
    """

    number: int
    epoch: str


class PendingResource(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one instance takes: of the host as a whole, its NUMA cells, devices and providers."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    numa: tuple[NUMAUse, ...] | None = None
    pci: PCIPools | None = None
    providers: tuple[ProviderUse, ...] = ()
    """Of which resource providers, beside the host's own vCPUs, memory and disk."""

    @property
    def of_flavor(self) -> PendingResource:
        """The part that is the same on every host."""
        return PendingResource(vcpus=self.vcpus, memory_mb=self.memory_mb, disk_mb=self.disk_mb)


def promise_id(instance_uuid: str, host_uuid: str) -> str:
    """One promise for each instance and host."""
    return f"{instance_uuid}@{host_uuid}"


class Claim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A decision's wish: this instance on that host, decided on ``host_version`` of its record."""

    instance_uuid: str
    host_uuid: str
    host: str
    nodename: str
    resources: PendingResource
    host_version: int
    request_id: str = ""
    project_id: str | None = None

    @property
    def id(self) -> str:
        """The id of the promise this would become."""
        return promise_id(self.instance_uuid, self.host_uuid)

    @property
    def is_pending(self) -> bool:
        """Nobody has seen the instance yet."""
        return True


class Reservation(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The stored, expiring promise. All times are seconds of the *store's* clock."""

    instance_uuid: str
    host_uuid: str
    host: str
    nodename: str
    resources: PendingResource
    created_at_s: float
    expires_at_s: float
    token: int
    request_id: str = ""
    project_id: str | None = None
    state: Literal["held", "confirmed"] = "held"
    announced_at_s: float | None = None
    """When the instance was said to be there; use that is reported later includes it."""
    schema: int = PROMISE_SCHEMA

    @property
    def id(self) -> str:
        """The promise's id; promising the same again replaces it."""
        return promise_id(self.instance_uuid, self.host_uuid)

    @property
    def is_pending(self) -> bool:
        """Whether nobody has seen the instance yet; then the promise may still be given back."""
        return self.announced_at_s is None
