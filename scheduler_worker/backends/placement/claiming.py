"""Placement's allocation candidates and allocations: forms of bodies, meanings of answers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler_worker.backends.placement.reading import MAX_DETAIL
from scheduler_worker.backends.placement.session import PlacementAnswer, PlacementSession
from scheduler_worker.conversion import convert
from scheduler_worker.errors import PlacementRefused
from scheduler_worker.model.providers import (
    AllocationRequest,
    CandidatesAnswer,
    Consumer,
    ConsumerAllocation,
    Owner,
    ProviderSummary,
)
from scheduler_worker.placement import ClaimRefusal, Why
from scheduler_worker.wording import cut

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_CONCURRENT = "placement.concurrent_update"
_OF_CONSUMER = "consumer generation conflict"
_NO_PROVIDER = re.compile(r"resource provider '[^']*' that does not exist")
_CANDIDATES = "/allocation_candidates"


class _Request(msgspec.Struct):
    allocations: dict[str, ConsumerAllocation]
    mappings: dict[str, tuple[str, ...]]


class _Candidates(msgspec.Struct):
    allocation_requests: list[_Request]
    provider_summaries: dict[str, ProviderSummary]


class _Answer(msgspec.Struct):
    """The answer to ``GET /allocations/UUID``; a consumer that holds nothing has no generation."""

    allocations: dict[str, ConsumerAllocation]
    project_id: str = ""
    user_id: str = ""
    consumer_generation: int | None = None


class AllocationCandidatesSource:
    """Asks Placement; behind the port ``CandidateSource``."""

    def __init__(self, session: PlacementSession) -> None:
        self._session = session

    def candidates(self, query: str, *, timeout_s: float) -> CandidatesAnswer:
        answer = self._session.request("GET", f"{_CANDIDATES}?{query}", timeout_s=timeout_s)
        if not answer.is_ok:
            raise _refused("GET", answer, _CANDIDATES)
        try:
            body = convert(answer.body, _Candidates)
        except msgspec.ValidationError as error:
            raise PlacementRefused(f"its answer to GET {_CANDIDATES} is no such: {error}") from None
        return CandidatesAnswer(
            requests=tuple(
                AllocationRequest(_amounts(request.allocations), request.mappings)
                for request in body.allocation_requests
            ),
            summaries=body.provider_summaries,
        )


def _amounts(allocations: Mapping[str, ConsumerAllocation]) -> dict[str, dict[str, int]]:
    return {provider: held.resources for provider, held in allocations.items()}


class PlacementAllocations:
    """Reads and writes consumers; behind the port ``Allocations``."""

    def __init__(self, session: PlacementSession) -> None:
        self._session = session

    def write(self, consumers: Sequence[Consumer], *, timeout_s: float) -> ClaimRefusal | None:
        body = {consumer.uuid: _encoded(consumer) for consumer in consumers}
        answer = self._session.request("POST", "/allocations", body, timeout_s=timeout_s)
        if answer.is_ok:
            return None
        code, detail = answer.error
        why = _why(answer.status, code, detail)
        if why is None:
            raise _refused("POST", answer)
        providers = tuple(_UUID.findall(detail))
        return ClaimRefusal(why=why, message=_sentence(detail), providers=providers)

    def read(self, uuid: str, *, timeout_s: float) -> Consumer | None:
        answer = self._session.request("GET", f"/allocations/{uuid}", timeout_s=timeout_s)
        if not answer.is_ok:
            raise _refused("GET", answer)
        try:
            body = convert(answer.body, _Answer)
        except msgspec.ValidationError as error:
            problem = f"its answer about consumer {uuid} is no such: {error}"
            raise PlacementRefused(problem) from None
        if not body.allocations:
            return None
        return Consumer(
            uuid=uuid,
            owner=Owner(body.project_id, body.user_id),
            held=_amounts(body.allocations),
            generation=body.consumer_generation,
        )


def _encoded(consumer: Consumer) -> dict[str, Any]:
    body: dict[str, Any] = {
        "allocations": {
            provider: {"resources": amounts} for provider, amounts in consumer.held.items()
        },
        "project_id": consumer.owner.project_id,
        "user_id": consumer.owner.user_id,
        "consumer_generation": consumer.generation,
    }
    if consumer.mappings:
        body["mappings"] = consumer.mappings
    return body


def _why(status: int, code: str, detail: str) -> Why | None:
    """Why nothing was written; None: for a reason that will not go away."""
    if status == 409 and code == _CONCURRENT:
        return Why.CHANGED if _OF_CONSUMER in detail else Why.BUSY
    if status == 409:
        return Why.FULL
    return Why.GONE if status == 400 and _NO_PROVIDER.search(detail) else None


def _refused(method: str, answer: PlacementAnswer, path: str = "/allocations") -> PlacementRefused:
    why = _sentence(answer.error[1])
    return PlacementRefused(f"it answered {answer.status} to {method} {path}: {why}")


def _sentence(detail: str) -> str:
    """The detail without the general sentence that stands before an empty line."""
    return cut(" ".join(detail.rpartition("\n\n")[2].split()), MAX_DETAIL)
