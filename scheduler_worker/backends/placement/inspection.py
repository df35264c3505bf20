"""Which microversions Placement speaks."""

import msgspec

from scheduler_worker.backends.placement.session import PlacementSession
from scheduler_worker.errors import PlacementRefused


class _Version(msgspec.Struct):
    min_version: str
    max_version: str


class _Versions(msgspec.Struct):
    versions: list[_Version]


def versions(session: PlacementSession) -> tuple[str, str]:
    """The oldest and the newest. Raises PlacementUnavailable, PlacementRefused."""
    answer = session.request("GET", "/")
    try:
        spoken = msgspec.convert(answer.body, _Versions).versions
        return spoken[0].min_version, spoken[0].max_version
    except (msgspec.ValidationError, IndexError):
        raise PlacementRefused(f"its answer to GET / ({answer.status}) has no versions") from None
