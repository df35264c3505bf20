"""What would become of requests: why each host would be chosen or not, and how many more fit."""

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError
from scheduler_worker.model.capacity import FlavorCapacity
from scheduler_worker.model.decisions import Diagnosis, FilterStep, HostVerdict, nearness
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.operations.operation import Call, operation

if TYPE_CHECKING:
    from scheduler_worker.model.decisions import Explanation
    from scheduler_worker.model.requests import RequestSpec

MAX_VERDICTS = 1000
MAX_FLAVORS = 200
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
        list[str] | None,
        Meta(
            description="The hosts to explain, by name, node name or uuid, with every filter that "
            "rejects them. Else all, with the first such filter."
        ),
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
    not_asked: list[str] = []
    """What this process could not ask: `placement` where its library or an option is missing."""


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
    explanation = call.services.scheduler.explain(request, hosts=names, limit=asked.limit)
    not_asked = list(call.services.not_asked)
    return convert({**_plain(explanation), "not_asked": not_asked}, ExplanationView)


def _plain(explanation: "Explanation") -> dict[str, Any]:
    """The cluster that would be chosen at the top level, or whose hosts come nearest; the others in
    ``others``.
    """
    from scheduler_worker.codec import encode_diagnosis
    from scheduler_worker.scheduling import sentence
    from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS

    clusters = dict(explanation.clusters)
    placed = (name for name, cluster in clusters.items() if cluster.chosen is not None)
    nearest = max(clusters, key=lambda name: nearness(clusters[name]), default=None)
    name = next(placed, nearest)
    diagnosis = Diagnosis() if name is None else clusters.pop(name)
    first = {"cluster": name, **encode_diagnosis(diagnosis)}
    alternatives = [{"cluster": key, **encode_diagnosis(clusters[key])} for key in clusters]
    alternatives.sort(key=lambda cluster: cluster["chosen"] is None)
    if explanation.reason not in (None, NOT_ENOUGH_HOSTS):
        first["sentence"] = sentence.of_reason(explanation.reason)
    elif explanation.reason and alternatives:
        hosts = sum(cluster.hosts for cluster in explanation.clusters.values())
        first["sentence"] = sentence.of_clusters(
            name, len(explanation.clusters), hosts, first["sentence"]
        )
    outcome = {"reason": explanation.reason, "not_found": explanation.not_found}
    return {**first, "others": alternatives, **outcome}


class CapacityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Flavors, each to be counted by itself; nothing is reserved."""

    flavors: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            max_length=MAX_FLAVORS,
            description="Each with the fields of Nova's Flavor: `vcpus`, `memory_mb`, and if "
            "wanted `name`, `root_gb`, `ephemeral_gb`, `swap`, `extra_specs`.",
        ),
    ]
    spec_obj: Annotated[
        dict[str, Any],
        Meta(description="What narrows the hosts: fields of Nova's RequestSpec beside `flavor`."),
    ] = {}


class CapacityAnswer(msgspec.Struct, frozen=True):
    """The capacity for each flavor, in the order of the request."""

    flavors: list[FlavorCapacity]
    not_asked: list[str] = []
    """As in explanations; what providers share is then not counted."""


@operation("POST", "/capacity")
def capacity(call: Call, asked: CapacityRequest) -> CapacityAnswer:
    """Count how many more instances of each flavor fit, and say what runs out first.

    The count is that of placing instances one by one until one is refused, under each cluster's
    policy; flavors are counted independently of each other. Nothing is reserved.
    """
    from scheduler_worker import codec

    specs: dict[str, RequestSpec] = {}
    for number, flavor in enumerate(asked.flavors):
        where = f"flavors[{number}]"
        spec = codec.decode_request_spec(
            {**asked.spec_obj, "flavor": flavor}, paths={"flavor": where}, is_strict=True
        )
        disk = f", {spec.flavor.root_gb:,} GiB" if spec.flavor.root_gb else ""
        figures = f"{spec.flavor.vcpus:,} vCPUs, {spec.flavor.memory_mb:,} MiB{disk}"
        name = spec.flavor.name or figures
        if name in specs:
            raise RequestError(where, f"{name!r} is listed twice")
        specs[name] = spec
    services = call.services
    return CapacityAnswer(list(services.capacity.of(list(specs.items()))), list(services.not_asked))
