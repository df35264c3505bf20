"""Filters that match the metadata of a host's aggregates, its zone included, with the request."""

from typing import Annotated, Any

import msgspec

from scheduler_worker.model.aggregates import (
    DEFAULT_AVAILABILITY_ZONE,
    listed_values,
    split_values,
    zones,
)
from scheduler_worker.model.hosts import Aggregates
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.extra_specs import meets
from scheduler_worker.scheduling.filters.facts import AggregateFilter

TENANT = "filter_tenant_id"
INSTANCE_TYPE = "instance_type"
SCOPE = "aggregate_instance_extra_specs"


class ImageIsolationParameters(msgspec.Struct, frozen=True):
    """Which metadata keys are image properties; no namespace: all of them."""

    aggregate_image_properties_isolation_namespace: Annotated[str | None, Opt(mutable=True)] = None
    """AggregateImagePropertiesIsolation: read only metadata keys that begin with this and the
    separator."""
    aggregate_image_properties_isolation_separator: Annotated[str, Opt(mutable=True)] = "."
    """AggregateImagePropertiesIsolation: what stands between the namespace and the rest of a
    key."""


class AggregateImagePropertiesIsolation(AggregateFilter):
    """Passes hosts whose aggregates do not require another value of a property the image has.

    A property that the image lacks is not required. With
    ``aggregate_image_properties_isolation_namespace`` only metadata keys that begin with it count;
    the property's name is still the whole key.

    Reads: the image's properties.
    Options: ``aggregate_image_properties_isolation_namespace``,
    ``aggregate_image_properties_isolation_separator``.
    Metadata: names of image properties; several values are separated by commas.
    Example: aggregate metadata ``os_distro=windows`` keeps out images of another ``os_distro``.
    """

    RUN_ON_REBUILD = True
    parameters_type = ImageIsolationParameters

    def asked(self, spec: RequestSpec) -> Any:
        """The image's properties that count, as text."""
        namespace = self.parameters.aggregate_image_properties_isolation_namespace
        separator = self.parameters.aggregate_image_properties_isolation_separator
        prefix = f"{namespace}{separator}" if namespace else ""
        return tuple(
            (name, str(value))
            for name, value in sorted(spec.image_properties.items())
            if value and name.startswith(prefix)
        )

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        for name, value in asked:
            allowed = listed_values(aggregates, name)
            if allowed and value not in allowed:
                listing = ", ".join(sorted(allowed))
                return f"is for images whose {name} is {listing}, not {value[:80]}"
        return None


class AggregateInstanceExtraSpecsFilter(AggregateFilter):
    """Passes hosts whose aggregates' metadata meets the flavor's extra specs with scope
    ``aggregate_instance_extra_specs`` or without a scope.

    Reads: the flavor's extra specs.
    Metadata: the keys that the extra specs name; several values are separated by commas.
    Example: extra spec ``aggregate_instance_extra_specs:ssd = true`` and aggregate metadata
    ``ssd=true``.
    """

    def asked(self, spec: RequestSpec) -> Any:
        requirements = []
        for name, text in sorted(spec.flavor.extra_specs.items()):
            scope, colon, key = name.partition(":")
            if not colon:
                requirements.append((scope, text))
            elif scope == SCOPE:
                requirements.append((key, text))
        return tuple(requirements)

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        for key, text in asked:
            values = listed_values(aggregates, key)
            if not values:
                return f"no aggregate of it has {key}, which should meet {text!r}"
            if not any(meets(value, text) for value in values):
                listing = ", ".join(sorted(values))
                return f"{key} of its aggregates is {listing}, which does not meet {text!r}"
        return None


class AggregateMultiTenancyIsolation(AggregateFilter):
    """Passes hosts without tenants and hosts of the request's tenant: aggregates name their tenants
    under keys that begin with ``filter_tenant_id``.

    Reads: the project.
    Metadata: keys that begin with ``filter_tenant_id``; several projects are separated by commas.
    Example: aggregate metadata ``filter_tenant_id=PROJECT_ID``.
    """

    def asked(self, spec: RequestSpec) -> Any:
        return (spec.project_id,)

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        items = (item for aggregate in aggregates for item in aggregate.metadata.items())
        texts = (text for key, text in items if key.startswith(TENANT))
        tenants = {tenant for text in texts for tenant in split_values(text)}
        if not tenants or not tenants.isdisjoint(asked):
            return None
        return f"is for {len(tenants)} other project{'s' if len(tenants) > 1 else ''}"


class AggregateTypeAffinityFilter(AggregateFilter):
    """Passes hosts whose aggregates name the flavor under ``instance_type``, and hosts whose
    aggregates name no flavor.

    Reads: the flavor's name.
    Metadata: ``instance_type``; several flavors are separated by commas.
    Example: aggregate metadata ``instance_type=m1.small,m1.large``.
    """

    def asked(self, spec: RequestSpec) -> Any:
        return (spec.flavor.name,)

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        named = listed_values(aggregates, INSTANCE_TYPE)
        if not named or not (named - {""}).isdisjoint(asked):
            return None
        return f"is for flavors {', '.join(sorted(named))}, not {asked[0]}"


class ZoneParameters(msgspec.Struct, frozen=True):
    """The zone of hosts whose aggregates name none."""

    default_availability_zone: Annotated[str, Opt(mutable=True)] = DEFAULT_AVAILABILITY_ZONE
    """The availability zone of hosts that are in no aggregate with one."""


class AvailabilityZoneFilter(AggregateFilter):
    """Passes hosts of the requested zone; hosts without a zone are in the default one.

    Reads: the zones of the host's aggregates; the requested zone.
    Options: ``[DEFAULT] default_availability_zone``.
    Metadata: ``availability_zone``; several zones are separated by commas.
    Example: ``openstack server create --availability-zone az1 ...``
    """

    parameters_type = ZoneParameters

    def asked(self, spec: RequestSpec) -> Any:
        return spec.availability_zone

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        zone_names = zones(aggregates) or {self.parameters.default_availability_zone}
        if not asked or asked in zone_names:
            return None
        return f"is in zone {', '.join(sorted(zone_names))}, not in {asked}"

    def demand(self, spec: RequestSpec) -> str:
        return f"are in zone {spec.availability_zone}"
