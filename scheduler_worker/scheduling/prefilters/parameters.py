"""The parameters of the request filters: Nova's options about Placement queries."""

from __future__ import annotations

from typing import Annotated

import msgspec

from scheduler_worker.options import Opt


class RequestFilterParameters(msgspec.Struct, frozen=True):
    """Which rules apply, by the names of the options in ``[scheduler]``."""

    limit_tenants_to_placement_aggregate: Annotated[bool, Opt(mutable=True)] = False
    """Whether a project for which there are aggregates (their metadata has a key that begins with
    filter_tenant_id, and the project's id as its value) may use only their hosts."""
    placement_aggregate_required_for_tenants: Annotated[bool, Opt(mutable=True)] = False
    """Whether a project without such an aggregate may use no host at all. Only together with
    limit_tenants_to_placement_aggregate."""
    query_placement_for_image_type_support: Annotated[bool, Opt(mutable=True)] = False
    """Whether a host must have the trait COMPUTE_IMAGE_TYPE_<disk format> of the image."""
    enable_isolated_aggregate_filtering: Annotated[bool, Opt(mutable=True)] = False
    """Whether hosts of an aggregate with the metadata trait:<name>=required take only requests that
    require that trait."""
    image_metadata_prefilter: Annotated[bool, Opt(mutable=True)] = False
    """Whether image properties such as hw_disk_bus and hw_video_model require the matching traits
    of a host."""
    query_placement_for_routed_network_aggregates: Annotated[bool, Opt(mutable=True)] = False
    """Whether a host must report every requested network."""
