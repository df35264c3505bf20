"""The request specification and its parts, with Nova's field names.

A field that no filter or weigher reads yet is kept in its plain form rather than dropped. Structs
of many fields are encoded without those at their defaults; :func:`every_field` gives them all.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from scheduler_worker.model.providers import AllocationCandidates
from scheduler_worker.model.sizes import (
    MAX_GROUPS,
    MAX_TRAITS,
    Aggregates,
    LongText,
    Size,
    Text,
    Traits,
)
from scheduler_worker.model.virt import NO_MACHINE, VirtualMachine

MAX_INSTANCES = 10_000
"""Upper bound of instances in one request."""


Property = (
    Annotated[
        list[LongText | bool | int | float | list[Any] | dict[str, Any] | None],
        Meta(max_length=MAX_TRAITS),
    ]
    | LongText
    | bool
    | int
    | float
    | dict[str, Any]
    | None
)
"""The value of an image's property."""


class Flavor(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The size of an instance: memory and swap in MiB, disks in GiB."""

    memory_mb: Size
    vcpus: Size
    root_gb: Size = 0
    ephemeral_gb: Size = 0
    swap: Size = 0
    id: int | None = None
    name: Text | None = None
    flavorid: Text | None = None
    extra_specs: dict[Text, Text] = {}
    rxtx_factor: float | None = None
    vcpu_weight: int | None = None
    disabled: bool = False
    is_public: bool = True
    projects: tuple[Text, ...] = ()
    description: Annotated[str, Meta(max_length=65_535)] | None = None

    @property
    def disk_mb(self) -> int:
        """Local disk in MiB, swap included."""
        return 1024 * (self.root_gb + self.ephemeral_gb) + self.swap


class ImageMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The image; a volume-backed request has one without ``id``. Properties are typed values."""

    id: Text | None = None
    name: Text | None = None
    status: Text | None = None
    visibility: Text | None = None
    protected: bool | None = None
    checksum: Text | None = None
    owner: Text | None = None
    size: int | None = None
    virtual_size: int | None = None
    container_format: Text | None = None
    disk_format: Text | None = None
    created_at: Text | None = None
    updated_at: Text | None = None
    tags: tuple[Text, ...] = ()
    direct_url: LongText | None = None
    min_ram: int | None = None
    min_disk: int | None = None
    properties: dict[Text, Property] = {}


class InstanceGroup(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A server group as the caller saw it: ``hosts`` and ``members`` are snapshots."""

    uuid: Text | None = None
    id: int | None = None
    name: Text | None = None
    user_id: Text | None = None
    project_id: Text | None = None
    policy: Text | None = None
    rules: dict[Text, Text] = msgspec.field(default_factory=dict, name="_rules")
    members: tuple[Text, ...] = ()
    hosts: tuple[Text, ...] = ()

    @property
    def max_server_per_host(self) -> int:
        """How many members may share a host under anti-affinity."""
        return int(self.rules.get("max_server_per_host", 1))


class CellMapping(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A cell. Its URLs contain passwords, and are not read."""

    uuid: Text | None = None
    name: Text | None = None


class Destination(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The destination of the request."""

    host: Text | None = None
    node: Text | None = None
    cell: CellMapping | None = None
    aggregates: Aggregates | None = None
    forbidden_aggregates: Aggregates | None = None
    allow_cross_cell_move: bool = False

    @property
    def cell_uuid(self) -> str | None:
        """The cell to stay in; None: any."""
        return self.cell.uuid if self.cell else None


class RetriedHost(msgspec.Struct, frozen=True, gc=False):
    """A host and node on which the request failed before."""

    host: Text | None = None
    hypervisor_hostname: Text | None = None


class SchedulerRetries(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Earlier attempts to build the instance."""

    num_attempts: int = 0
    hosts: tuple[RetriedHost, ...] = ()


class SchedulerLimits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Oversubscription limits that go with a selection: vCPUs, MiB, GiB."""

    numa_topology: dict[str, Any] | None = None
    vcpu: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None


class RequestGroup(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A granular group of resources (a port's bandwidth, a device) beside the flavor's."""

    requester_id: Text | None = None
    use_same_provider: bool = True
    resources: dict[Text, int] = {}
    required_traits: Traits = ()
    forbidden_traits: Traits = ()
    aggregates: Annotated[tuple[Aggregates, ...], Meta(max_length=MAX_GROUPS)] = ()
    forbidden_aggregates: Aggregates = ()
    provider_uuids: tuple[Text, ...] = ()
    in_tree: Text | None = None


class RequestLevelParams(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Traits of the whole host that the request requires or forbids."""

    root_required: Traits = ()
    root_forbidden: Traits = ()
    same_subtree: Annotated[tuple[tuple[Text, ...], ...], Meta(max_length=MAX_GROUPS)] = ()


class NetworkMetadata(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Physical networks and tunnels the instance needs, for NUMA affinity of networks."""

    physnets: tuple[Text, ...] = ()
    tunneled: bool = False


class NetworkRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One requested network or port."""

    network_id: Text | None = None
    port_id: Text | None = None
    address: Text | None = None
    pci_request_id: Text | None = None
    tag: Text | None = None
    arq_uuid: Text | None = None
    device_profile: Text | None = None


REBUILD_CHECK = ["rebuild"]


class RequestSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One request: the flavor and everything that narrows the choice of a host."""

    flavor: Flavor
    num_instances: Annotated[int, Meta(ge=1, le=MAX_INSTANCES)] = 1
    instance_uuid: Text | None = None
    id: int | None = None
    project_id: Text | None = None
    user_id: Text | None = None
    image: ImageMeta | None = None
    availability_zone: Text | None = None
    force_hosts: tuple[Text, ...] | None = None
    force_nodes: tuple[Text, ...] | None = None
    ignore_hosts: tuple[Text, ...] | None = None
    only_hosts: tuple[Text, ...] | None = None
    """The hosts to choose from, all filters applying; None: any. Not set in Nova's requests."""
    closing_hosts: tuple[Text, ...] = ()
    """Hosts that are about to be put into maintenance; the worker sets it, for every request."""
    allocation_candidates: AllocationCandidates | None = None
    """What Placement answered about this request; None: it need not be asked. Set by the worker,
    never by a caller."""
    instance_group: InstanceGroup | None = None
    is_bfv: bool | None = None
    limits: SchedulerLimits | None = None
    requested_destination: Destination | None = None
    retry: SchedulerRetries | None = None
    scheduler_hints: dict[Text, list[LongText]] | None = None
    requested_resources: Annotated[tuple[RequestGroup, ...], Meta(max_length=MAX_GROUPS)] | None = (
        None
    )
    request_level_params: RequestLevelParams | None = None
    network_metadata: NetworkMetadata | None = None
    requested_networks: tuple[NetworkRequest, ...] = ()
    security_groups: tuple[Any, ...] = ()
    numa_topology: dict[str, Any] | None = None
    pci_requests: dict[str, Any] | None = None
    vm: VirtualMachine | UnsetType | None = UNSET
    """What our own callers say of the VM; not set in Nova's requests."""

    @property
    def machine(self) -> VirtualMachine:
        """What the request says of its VM, beside flavor and image."""
        return self.vm or NO_MACHINE

    @property
    def image_properties(self) -> Mapping[str, Any]:
        """The image's typed properties; empty when there is no image."""
        return self.image.properties if self.image else {}

    @property
    def is_rebuild_check(self) -> bool:
        """Whether the request only checks that the instance's own host suits a new image."""
        return (self.scheduler_hints or {}).get("_nova_check_type") == REBUILD_CHECK

    @property
    def skips_filters(self) -> bool:
        """Whether an administrator forced the destination, which bypasses the filters."""
        forced = bool(self.force_hosts or self.force_nodes)
        return forced and "_nova_check_type" not in (self.scheduler_hints or {})

    def hint(self, name: str) -> str | list[str] | None:
        """A scheduler hint: the element of a list of one, else the list; None: it is absent."""
        values = (self.scheduler_hints or {}).get(name)
        return values[0] if values is not None and len(values) == 1 else values


def every_field(value: Any) -> Any:
    """Plain data of a request or a part of it; its structs have fields at their defaults too."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: every_field(item)
            for field in structs.fields(value)
            if (item := getattr(value, field.name)) is not UNSET
        }
    if isinstance(value, (list, tuple)):
        return [every_field(item) for item in value]
    return msgspec.to_builtins(value)
