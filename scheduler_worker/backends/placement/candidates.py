"""Placement's allocation candidates over HTTP."""

import msgspec

from scheduler_worker.backends.placement.reading import Held, Summary
from scheduler_worker.backends.placement.session import PlacementSession
from scheduler_worker.errors import PlacementRefused
from scheduler_worker.model.providers import (
    SHARES,
    AllocationRequest,
    CandidatesAnswer,
    ProviderRoom,
    ProviderSummary,
)
from scheduler_worker.wording import cut

_PATH = "/allocation_candidates"
_MAX_DETAIL = 300


class _Request(msgspec.Struct):
    allocations: dict[str, Held]
    mappings: dict[str, tuple[str, ...]]


class _Answer(msgspec.Struct):
    allocation_requests: list[_Request]
    provider_summaries: dict[str, Summary]


class AllocationCandidatesSource:
    """Asks Placement; behind the port ``CandidateSource``."""

    def __init__(self, session: PlacementSession) -> None:
        self._session = session

    def candidates(self, query: str, *, timeout_s: float) -> CandidatesAnswer:
        answer = self._session.request("GET", f"{_PATH}?{query}", timeout_s=timeout_s)
        if not answer.is_ok:
            detail = " ".join(answer.error[1].rpartition("\n\n")[2].split())
            raise PlacementRefused(
                f"it answered {answer.status} to GET {_PATH}: {cut(detail, _MAX_DETAIL)}"
            )
        try:
            body = msgspec.convert(answer.body, _Answer)
        except msgspec.ValidationError as error:
            raise PlacementRefused(f"its answer to GET {_PATH} is no such: {error}") from None
        return CandidatesAnswer(
            requests=tuple(
                AllocationRequest(
                    {
                        provider: held.resources
                        for provider, held in allocation_request.allocations.items()
                    },
                    allocation_request.mappings,
                )
                for allocation_request in body.allocation_requests
            ),
            summaries={
                uuid: ProviderSummary(
                    root=provider_summary.root_provider_uuid,
                    shares=SHARES in provider_summary.traits,
                    rooms={
                        name: ProviderRoom(room.capacity, room.used)
                        for name, room in provider_summary.resources.items()
                    },
                )
                for uuid, provider_summary in body.provider_summaries.items()
            },
        )
