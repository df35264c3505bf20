"""The parameters of the request filters: Nova's options about Placement queries."""

from __future__ import annotations

import msgspec


class RequestFilterParameters(msgspec.Struct, frozen=True):
    """Which rules apply, by the names of the options in ``[scheduler]``."""

    limit_tenants_to_placement_aggregate: bool = False
    placement_aggregate_required_for_tenants: bool = False
    query_placement_for_image_type_support: bool = False
    enable_isolated_aggregate_filtering: bool = False
    image_metadata_prefilter: bool = False
    query_placement_for_routed_network_aggregates: bool = False
