"""Explanations: why each host would be chosen for a request, or not."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.model.decisions import Diagnosis, FilterStep, HostVerdict, nearness
from scheduler_worker.model.policies import PolicyReference
from scheduler_worker.operations.operation import Call, operation

if TYPE_CHECKING:
    from scheduler_worker.model.decisions import Explanation as Found

MAX_VERDICTS = 1000
SPEC = (
    "A request: the fields of Nova's RequestSpec, as an object or as a primitive. Only `flavor` is "
    "required, with its `vcpus` and `memory_mb`."
)


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for hosts; nothing is reserved."""

    spec_obj: Annotated[dict[str, Any], Meta(description=SPEC)]
    instance_uuids: Annotated[
        list[str] | None, Meta(description="Its instances; else they have no reservations.")
    ] = None
    hosts: Annotated[
        list[str] | None, Meta(description="The hosts to explain, by name; else all.")
    ] = None
    limit: Annotated[
        int, Meta(ge=1, le=MAX_VERDICTS, description="Hosts of each cluster at most.")
    ] = 100


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
    policy: PolicyReference | None


class ExplanationView(ClusterExplanation, frozen=True, kw_only=True):
    """The cluster that would be chosen; `others` are the further clusters that may serve it."""

    others: list[ClusterExplanation]
    reason: str | None
    not_found: dict[str, str]


@operation("POST", "/explain")
def explain(call: Call, asked: ExplainRequest) -> ExplanationView:
    """Say which filter removes which host, and the weights of the others; reserve nothing."""
    from scheduler_worker import codec
    from scheduler_worker.scheduling.pipeline import Request

    spec = codec.decode_request_spec(asked.spec_obj, is_strict=True)
    uuids = codec.decode_instance_uuids(asked.instance_uuids)
    if not uuids:
        named = spec.instance_uuid if spec.num_instances == 1 else None
        uuids = tuple(named or str(uuid.uuid4()) for _ in range(spec.num_instances))
    request = Request(spec=spec, instance_uuids=uuids, request_id=call.request_id)
    names = codec.decode_names(asked.hosts, "hosts")
    found = call.services.scheduler.explain(request, hosts=names, limit=asked.limit)
    return msgspec.convert(_plain(found), ExplanationView)


def _plain(found: Found) -> dict[str, Any]:
    """The cluster that would be chosen at the top level, or whose hosts come nearest; the others in
    ``others``.
    """
    from scheduler_worker.codec import encode_diagnosis
    from scheduler_worker.scheduling import sentence
    from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS

    clusters = dict(found.clusters)
    placed = (name for name, cluster in clusters.items() if cluster.chosen is not None)
    nearest = max(clusters, key=lambda name: nearness(clusters[name]), default=None)
    name = next(placed, nearest)
    diagnosis = Diagnosis() if name is None else clusters.pop(name)
    first = {"cluster": name, **encode_diagnosis(diagnosis)}
    others = [{"cluster": each, **encode_diagnosis(one)} for each, one in clusters.items()]
    others.sort(key=lambda each: each["chosen"] is None)
    if found.reason not in (None, NOT_ENOUGH_HOSTS):
        first["sentence"] = sentence.of_reason(found.reason)
    elif found.reason and others:
        hosts = sum(cluster.hosts for cluster in found.clusters.values())
        first["sentence"] = sentence.of_clusters(
            name, len(found.clusters), hosts, first["sentence"]
        )
    return {**first, "others": others, "reason": found.reason, "not_found": found.not_found}
