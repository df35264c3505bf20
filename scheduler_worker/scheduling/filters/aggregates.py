"""What the metadata of a host's aggregates asks of the request."""

from __future__ import annotations

from collections.abc import Hashable

from scheduler_worker.model.aggregates import listed_values, split_values
from scheduler_worker.model.hosts import Aggregates, Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.extra_specs import match
from scheduler_worker.scheduling.plugin import Filter

TENANT = "filter_tenant_id"
INSTANCE_TYPE = "instance_type"
SCOPE = "aggregate_instance_extra_specs"


class _AggregateFilter(Filter):
    """Looks at nothing of a host but its aggregates; hosts in the same ones are judged once."""

    run_filter_once_per_request = True
    reads_use = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return hosts.derived(
            (self.name, self.reads(spec)),
            lambda host: self.complaint(host.aggregates, spec) is None,
            "?",
            lambda all_: all_.by_aggregates().spread(lambda some: not self.complaint(some, spec)),
        )

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return self.complaint(host_state.aggregates, spec_obj) is None

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return self.complaint(host_state.aggregates, spec) or super().reason(host_state, spec)

    def complaint(self, aggregates: Aggregates, spec: RequestSpec) -> str | None:
        """Why hosts in these aggregates do not pass; None when they do."""
        raise NotImplementedError


class AggregateImagePropertiesIsolation(_AggregateFilter):
    """Passes hosts whose aggregates do not ask for another value of a property the image has.

    A property that the image lacks is not asked for. With
    ``aggregate_image_properties_isolation_namespace`` only metadata keys that begin with it count;
    the whole key is the property's name all the same.

    Reads: the image's properties.
    Options: ``aggregate_image_properties_isolation_namespace``,
    ``aggregate_image_properties_isolation_separator``.
    Metadata: names of image properties; several values are separated by commas.
    Example: aggregate metadata ``os_distro=windows`` keeps out images of another ``os_distro``.
    """

    RUN_ON_REBUILD = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._properties(spec))

    def reads(self, spec: RequestSpec) -> Hashable:
        return self._properties(spec)

    def _properties(self, spec: RequestSpec) -> tuple[tuple[str, str], ...]:
        """The image's properties that count, as texts."""
        namespace = self.options.aggregate_image_properties_isolation_namespace
        separator = self.options.aggregate_image_properties_isolation_separator
        prefix = f"{namespace}{separator}" if namespace else ""
        return tuple(
            (name, str(value))
            for name, value in sorted(spec.image_properties.items())
            if value and name.startswith(prefix)
        )

    def complaint(self, aggregates: Aggregates, spec: RequestSpec) -> str | None:
        for name, value in self._properties(spec):
            allowed = listed_values(aggregates, name)
            if allowed and value not in allowed:
                some = ", ".join(sorted(allowed))
                return f"is for images whose {name} is {some}, not {value[:80]}"
        return None


class AggregateInstanceExtraSpecsFilter(_AggregateFilter):
    """Passes hosts whose aggregates' metadata meets the flavor's extra specs: those of scope
    ``aggregate_instance_extra_specs``, and those without a scope.

    Reads: the flavor's extra specs.
    Metadata: whatever the extra specs name; several values are separated by commas.
    Example: extra spec ``aggregate_instance_extra_specs:ssd = true`` and aggregate metadata
    ``ssd=true``.
    """

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_requirements(spec))

    def reads(self, spec: RequestSpec) -> Hashable:
        return _requirements(spec)

    def complaint(self, aggregates: Aggregates, spec: RequestSpec) -> str | None:
        for key, text in _requirements(spec):
            found = listed_values(aggregates, key)
            if not found:
                return f"no aggregate of it has {key}, which should meet {text!r}"
            if not any(_meets(value, text) for value in found):
                some = ", ".join(sorted(found))
                return f"{key} of its aggregates is {some}, which does not meet {text!r}"
        return None


def _requirements(spec: RequestSpec) -> tuple[tuple[str, str], ...]:
    found = []
    for name, text in sorted(spec.flavor.extra_specs.items()):
        scope, colon, key = name.partition(":")
        if not colon:
            found.append((scope, text))
        elif scope == SCOPE:
            found.append((key, text))
    return tuple(found)


def _meets(value: str, text: str) -> bool:
    try:
        return match(value, text)
    except ValueError:
        # Text where the operator needs a number: this value does not meet it.
        return False


class AggregateMultiTenancyIsolation(_AggregateFilter):
    """Passes hosts of no tenant, and those of the request's: aggregates name their tenants under
    keys that begin with ``filter_tenant_id``.

    Reads: the project.
    Metadata: keys that begin with ``filter_tenant_id``; several projects are separated by commas.
    Example: aggregate metadata ``filter_tenant_id=PROJECT_ID``.
    """

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.project_id or ""

    def complaint(self, aggregates: Aggregates, spec: RequestSpec) -> str | None:
        tenants = {
            tenant
            for each in aggregates
            for key, text in each.metadata.items()
            if key.startswith(TENANT)
            for tenant in split_values(text)
        }
        if not tenants or spec.project_id in tenants:
            return None
        return f"is for {len(tenants)} other projects"


class AggregateTypeAffinityFilter(_AggregateFilter):
    """Passes hosts for any flavor, and those whose aggregates name the flavor under
    ``instance_type``.

    Reads: the flavor's name.
    Metadata: ``instance_type``; several flavors are separated by commas.
    Example: aggregate metadata ``instance_type=m1.small,m1.large``.
    """

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.name or ""

    def complaint(self, aggregates: Aggregates, spec: RequestSpec) -> str | None:
        named = listed_values(aggregates, INSTANCE_TYPE)
        if not named or (spec.flavor.name or "") in named - {""}:
            return None
        return f"is for flavors {', '.join(sorted(named))}, not {spec.flavor.name}"
