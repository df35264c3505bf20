"""Explanations in wire forms, as RPC and REST serve them."""

from __future__ import annotations

from typing import Any

from scheduler_worker.errors import RequestError
from scheduler_worker.model.decisions import Diagnosis, Explanation, nearness
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context
from scheduler_worker.rpc.preparation import prepare_request
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS
from scheduler_worker.service.placement.scheduler import Scheduler


def explanation(
    scheduler: Scheduler,
    context: Context,
    spec_obj: Any,
    instance_uuids: Any,
    hosts: Any,
    limit: Any,
    by_hand: Any = None,
) -> dict[str, Any]:
    """Why each host would be chosen or not; reserves nothing.

    ``by_hand`` is a request as people write it, in place of a specification.

    Raises:
        RequestError: an argument is invalid; names its field.
        StateUnavailable: the store cannot be reached.
    """
    uuids = codec.decode_instance_uuids(instance_uuids)
    names = codec.decode_names(hosts, "hosts")
    most = codec.decode_limit(limit, default=100)
    if by_hand is None:
        request = prepare_request(context, codec.decode_request_spec(spec_obj), uuids)
        return _explanation(scheduler.explain(request, hosts=names, limit=most))
    if spec_obj is not None:
        raise RequestError("request", "there is a spec_obj, too; give one of them")
    asked = codec.decode_request_by_hand(by_hand)
    with codec.naming("request"):
        request = prepare_request(context, asked.spec, uuids)
        return _explanation(scheduler.explain(request, hosts=names + asked.hosts, limit=most))


def _explanation(found: Explanation) -> dict[str, Any]:
    """The cluster that would be chosen at the top level, or whose hosts come nearest; the others in
    ``others``.
    """
    clusters = dict(found.clusters)
    placed = (name for name, each in clusters.items() if each.chosen is not None)
    nearest = max(clusters, key=lambda name: nearness(clusters[name]), default=None)
    name = next(placed, nearest)
    diagnosis = Diagnosis() if name is None else clusters.pop(name)
    first = {"cluster": name, **codec.encode_diagnosis(diagnosis)}
    others = [{"cluster": each, **codec.encode_diagnosis(one)} for each, one in clusters.items()]
    others.sort(key=lambda each: each["chosen"] is None)
    if found.reason not in (None, NOT_ENOUGH_HOSTS):
        first["sentence"] = sentence.of_reason(found.reason)
    elif found.reason and others:
        hosts = sum(each.hosts for each in found.clusters.values())
        said = sentence.of_clusters(name, len(found.clusters), hosts, first["sentence"])
        first["sentence"] = said
    rest = {"others": others, "reason": found.reason, "not_found": found.not_found}
    return {"sentence": first.pop("sentence")} | first | rest
