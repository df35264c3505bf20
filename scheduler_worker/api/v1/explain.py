"""Explanations: why each host would be chosen for a request, or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation
from scheduler_worker.model.decisions import FilterStep

MAX_VERDICTS = 1000


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for hosts, as the RPC method `explain` takes it; nothing is reserved."""

    spec_obj: dict[str, Any] | None = None
    """The ``RequestSpec``, as an object or as a primitive of Nova."""
    request: dict[str, Any] | None = None
    """In its place a request as people write it, see ``docs/rpc.md``, section 3."""
    instance_uuids: list[str] | None = None
    hosts: list[str] | None = None
    """Restricts the verdicts to these hosts."""
    limit: Annotated[int, Meta(ge=1, le=MAX_VERDICTS)] = 100
    """Verdicts of each cluster."""


class WeightPart(msgspec.Struct, frozen=True):
    """What one weigher adds to a host's weight; null: not a finite number."""

    name: str
    raw: float | None
    normalized: float | None
    multiplier: float | None
    product: float | None


class HostVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one host: rejected by a filter with a reason, or weighed."""

    host: str
    nodename: str
    rejected_by: str | None
    reason: str | None
    weight: float | None
    weights: list[WeightPart]


class ClusterExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why the hosts of one cluster would be chosen or not, in the order of filters and weights."""

    sentence: str | None
    """All of it in one sentence, to be quoted."""
    cluster: str | None
    hosts: int
    filters: list[FilterStep]
    verdicts: list[HostVerdict]
    left_out: int
    momentary: bool
    """Whether hosts were refused for a lack of room, or because they are down."""
    notes: list[str] = []
    chosen: str | None
    policy: Any


class Explanation(ClusterExplanation, frozen=True, kw_only=True):
    """The cluster that would be chosen; `others` are the further clusters that may serve it."""

    others: list[ClusterExplanation]
    reason: str | None
    not_found: dict[str, str]


Explain = Callable[[str, ExplainRequest], dict[str, Any]]
"""Gets the id of the request and its body; answers as the RPC method ``explain`` does.

Raises RequestError, whose field is a path below the body; StateUnavailable.
"""


class ExplainOperations:
    """Serves explanations."""

    def __init__(self, access: Access, explain: Explain) -> None:
        self._access = access
        self._explain = explain

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "POST", "/explain", "explain",
                "Which filter removes which host, and the weights of the others.",
                self.explain, answer=Explanation, body=ExplainRequest,
            )
        ]  # fmt: skip

    def explain(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        found = self._explain(call.request_id, call.body)
        return Answer(msgspec.convert(found, Explanation))
