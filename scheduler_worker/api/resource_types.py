"""The resources of the REST API: one struct for each type, which both codecs follow.

A field is None when it is absent; a codec leaves it out when it writes. In XML a field is

* a child element, by default: a text, or a nested resource;
* an attribute, where it is an :data:`Attribute`;
* both, where it is :data:`AttributeAndChild`: clients of either form find it;
* a list in an element of the field's name, where it is a tuple: its members have the
  ``element`` of their type;
* repeated elements without one around them, where it is :data:`Links`.

The names are oVirt's; ``docs/migrating-from-ovirt.md`` explains the fields.
"""

import re
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

Attribute = Annotated[str | None, Meta(extra={"xml": "attribute"})]
AttributeAndChild = Annotated[str | None, Meta(extra={"xml": "attribute and child"})]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all resources; ``element`` is its name in both forms."""

    element: ClassVar[str]
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Fields that oVirt has and that mean nothing here: clients may send them."""
    ignores_others: ClassVar[bool] = False
    """Whether clients may send any other field."""

    @classmethod
    def elements(cls) -> str:
        """The name of a collection."""
        return re.sub("y$", "ie", cls.element) + "s"


class Link(Resource, frozen=True, kw_only=True):
    """The place of a related resource."""

    element = "link"
    href: Attribute = None
    rel: Attribute = None


Links = Annotated[tuple[Link, ...] | None, Meta(extra={"xml": "repeated"})]


class Property(Resource, frozen=True, kw_only=True):
    """A parameter; its value is a regular expression where a unit declares it."""

    element = "property"
    name: str | None = None
    value: str | None = None


Properties = tuple[Property, ...] | None


class Identified(Resource, frozen=True, kw_only=True):
    """A resource with an id."""

    ignored = frozenset({"actions", "comment", "description", "link", "name", "scheduling_policy"})
    href: Attribute = None
    id: Attribute = None


class Unit(Identified, frozen=True, kw_only=True):
    """A policy unit. A unit of several kinds has one such entry for each."""

    element = "scheduling_policy_unit"
    name: str | None = None
    description: str | None = None
    enabled: bool | None = None
    internal: bool | None = None
    properties: Properties = None
    type: AttributeAndChild = None
    """``filter``, ``weight`` or ``load_balancing``; selectors have none."""


class Filter(Identified, frozen=True, kw_only=True):
    """A filter of a policy; its id is that of the unit."""

    element = "filter"
    position: int | None = None
    """-1 first, 1 last, 0 neither."""
    scheduling_policy_unit: Unit | None = None


class Weight(Identified, frozen=True, kw_only=True):
    """A weight of a policy; its id is that of the unit."""

    element = "weight"
    factor: float | None = None
    scheduling_policy_unit: Unit | None = None


class Balance(Identified, frozen=True, kw_only=True):
    """The balance of a policy; its id is that of the unit."""

    element = "balance"
    scheduling_policy_unit: Unit | None = None


class Thresholds(Resource, frozen=True, kw_only=True):
    """The utilisation limits of API version 3: percent, percent, and seconds."""

    element = "thresholds"
    high: Annotated[int | None, Meta(extra={"xml": "attribute"})] = None
    low: Annotated[int | None, Meta(extra={"xml": "attribute"})] = None
    duration: Annotated[int | None, Meta(extra={"xml": "attribute"})] = None


class Policy(Identified, frozen=True, kw_only=True):
    """A cluster policy; inside of a cluster of version 3, with that cluster's values."""

    element = "scheduling_policy"
    name: str | None = None
    policy: str | None = None
    """Another word for the name, in version 3."""
    description: str | None = None
    link: Links = None
    default_policy: bool | None = None
    locked: bool | None = None
    thresholds: Thresholds | None = None
    properties: Properties = None
    filters: tuple[Filter, ...] | None = None
    weights: tuple[Weight, ...] | None = None
    weight: tuple[Weight, ...] | None = None
    """``weights`` under the name that oVirt's client libraries read."""
    balances: tuple[Balance, ...] | None = None


class Cluster(Identified, frozen=True, kw_only=True):
    """A cluster with its policy. Its machines and networks are the engine's affair."""

    element = "cluster"
    ignored = Identified.ignored | {
        *("affinity_groups", "ballooning_enabled", "bios_type", "cpu", "cpu_profiles"),
        *("data_center", "display", "enabled_features", "error_handling"),
        *("external_network_providers", "fencing_policy", "fips_mode", "firewall_type"),
        *("gluster_hooks", "gluster_service", "gluster_tuned_profile", "gluster_volumes"),
        *("ha_reservation", "ksm", "log_max_memory_used_threshold"),
        *("log_max_memory_used_threshold_type", "mac_pool", "maintenance_reason_required"),
        *("management_network", "memory_policy", "migration", "network_filters", "networks"),
        *("optional_reason", "permissions", "required_rng_sources", "serial_number"),
        *("supported_versions", "switch_type", "threads_as_cores", "trusted_service"),
        *("tunnel_migration", "upgrade_correlation_id", "upgrade_in_progress"),
        *("upgrade_percent_complete", "version", "virt_service", "vnc_encryption"),
    }
    name: str | None = None
    custom_scheduling_policy_properties: Properties = None
    scheduling_policy: Policy | None = None


class Version(Resource, frozen=True, kw_only=True):
    """A version of the product."""

    element = "version"
    major: int | None = None
    minor: int | None = None
    build: int | None = None
    revision: int | None = None
    full_version: str | None = None


class ProductInfo(Resource, frozen=True, kw_only=True):
    """What serves the API."""

    element = "product_info"
    name: str | None = None
    vendor: str | None = None
    version: Version | None = None


class Root(Resource, frozen=True, kw_only=True):
    """The entry of the API."""

    element = "api"
    link: Links = None
    product_info: ProductInfo | None = None
    time: str | None = None
    """ISO 8601, UTC, with milliseconds."""


class Fault(Resource, frozen=True, kw_only=True):
    """Why a request failed."""

    element = "fault"
    detail: str | None = None
    reason: str | None = None


class Action(Resource, frozen=True, kw_only=True):
    """The result of a request that returns no resource."""

    element = "action"
    ignores_others = True  # such as ``async``
    status: str | None = None
    scheduling_policy: Policy | None = None
    """The copy that was made, and the name that a client wants for it."""
