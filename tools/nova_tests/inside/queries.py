"""What Nova asks Placement about requests, compared with what ours asks.

A test of Nova looks at objects on the way to the question. They are right if the question is; so
the questions must be the same, and the test gets Nova's objects. Run by the interpreter that has
Nova.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

from nova import objects
from nova.compute import utils as compute_utils
from nova.scheduler import request_filter, utils
from nova_tests.inside.asking import Answer, Ours, answered, replace
from nova_tests.inside.expressing import Plain, aggregate, request_for_placement

ROOT = "root_required"
OF_STATUS = {"compute_status_filter", "process_reqspec"}
"""The request filters that forbid disabled hosts, as ours does in every question."""
DISABLED = "!COMPUTE_STATUS_DISABLED"

Parameters = dict[str, list[list[str]]]
"""The parameters of a query; the order of their parts is of no meaning."""


def replace_all(ours: Ours) -> None:
    _replace_requests(ours)
    _replace_amounts(ours)
    _replace_request_filters(ours)


def _replace_requests(ours: Ours) -> None:
    request = utils.ResourceRequest

    def of_spec(theirs: Any, cls: Any, spec: Any, enable_pinning_translate: bool = True) -> Answer:
        return _same(ours, theirs, spec, pins=enable_pinning_translate)

    def of_groups(theirs: Any, cls: Any, groups: Any, params: Any, policy: str) -> Answer:
        spec = objects.RequestSpec(
            flavor=objects.Flavor(extra_specs={"group_policy": policy, "resources:VCPU": "0"}),
            requested_resources=groups,
            request_level_params=params,
        )
        return _same(ours, theirs, spec)

    def of_scheduler(
        theirs: Any,
        context: Any,
        spec: Any,
        host_manager: Any,
        enable_pinning_translate: bool = True,
    ) -> Answer:
        return _same(ours, theirs, spec, pins=enable_pinning_translate)

    replace(ours, request, "from_request_spec", of_spec)
    replace(ours, request, "from_request_groups", of_groups)
    replace(ours, utils, "resources_from_request_spec", of_scheduler)


def _same(ours: Ours, theirs: Any, spec: Any, *, pins: bool = True) -> Answer:
    """Nova's request for resources, if it asks what ours asks; what request filters add aside."""
    answer = _asked(ours, request_for_placement(spec), pins=pins)
    if "refused" in answer or isinstance(theirs, Exception):
        return answer
    found, expected = answer["answer"], _parameters(theirs.to_querystring())
    found = _without_status(found) if ROOT in expected else _without(found, ROOT)
    return _compared(theirs, found, expected)


def _replace_amounts(ours: Ours) -> None:
    """What an instance takes of each resource class, from whichever providers."""

    def amounts(theirs: Any, instance: Any, flavor: Any) -> Answer:
        is_bfv = compute_utils.is_volume_backed_instance(None, instance)
        spec = objects.RequestSpec(flavor=flavor, is_bfv=is_bfv)
        answer = _asked(ours, request_for_placement(spec))
        if "refused" in answer:
            return answer
        found: Counter[str] = Counter()
        for key, [values] in answer["answer"].items():
            for each in values if key.startswith("resources") else ():
                name, _, amount = each.partition(":")
                found[name] += int(amount)
        return {"answer": dict(found)}

    replace(ours, utils, "resources_from_flavor", amounts)


def _replace_request_filters(ours: Ours) -> None:
    every = request_filter.ALL_REQUEST_FILTERS
    every[:] = [_filtering(ours, each) for each in every]
    for each in (*every, _filtering(ours, request_filter.process_reqspec)):
        setattr(request_filter, each.__name__, each)


def _filtering(ours: Ours, original: Callable[..., Any]) -> Callable[..., Any]:
    """A request filter. What it leaves must be what ours makes of the request that it was given."""
    name = original.__name__

    @functools.wraps(original)
    def replaced(context: Any, spec: Any) -> Any:
        before, aggregates = copy.deepcopy(spec), dict[str, Plain]()

        def ask(theirs: Any, *_: Any) -> Answer:
            answer = _asked(ours, request_for_placement(before), list(aggregates.values()))
            if "refused" in answer or isinstance(theirs, Exception):
                return answer
            found = answer["answer"]
            if name not in OF_STATUS:
                found = _without_status(found)
            return _compared(theirs, found, _of_nova(context, spec))

        with _kept(aggregates):
            return answered(ours, original, ask)(context, spec)

    return replaced


@contextmanager
def _kept(aggregates: dict[str, Plain]) -> Iterator[None]:
    """Keep the aggregates that Nova's database, or a mock of it, returns meanwhile, by uuid."""
    with ExitStack() as stack:
        for name in ("get_by_metadata", "get_non_matching_by_metadata_keys"):
            asked = getattr(objects.AggregateList, name)
            keeping = functools.partial(_keeping, asked, aggregates)
            stack.enter_context(mock.patch.object(objects.AggregateList, name, keeping))
        yield


def _keeping(
    asked: Callable[..., Any], aggregates: dict[str, Plain], *args: Any, **kwargs: Any
) -> Any:
    found = asked(*args, **kwargs)
    for each in found:
        known = aggregates.setdefault(each.uuid, aggregate(each.uuid, len(aggregates) + 1))
        known["metadata"] |= (
            each.metadata if "metadata" in each else {kwargs["key"]: kwargs["value"]}
        )
    return found


def _asked(
    ours: Ours, spec: Plain, aggregates: Sequence[Plain] = (), *, pins: bool = True
) -> Answer:
    """What ours asks Placement about a request, as parameters.

    Raises AssertionError if its filters decide otherwise.
    """
    question = {"config": ours.options(), "request_spec": spec, "aggregates": aggregates}
    answer = ours.ask("query", {**question, "pins": pins})
    if "refused" in answer:
        return answer
    if otherwise := answer["answer"]["otherwise"]:
        raise AssertionError(f"ours asks {answer['answer']['query']}; {otherwise}")
    return {"answer": _parameters(answer["answer"]["query"])}


def _of_nova(context: Any, spec: Any) -> Parameters:
    """What Nova asks Placement about a request."""
    filled = objects.RequestSpec.obj_from_primitive(request_for_placement(spec))
    asked = utils.resources_from_request_spec(context, filled, mock.Mock())
    return _parameters(asked.to_querystring())


def _parameters(query: str) -> Parameters:
    found: Parameters = {}
    for key, value in parse_qsl(query):
        kind, _, parts = value.rpartition("in:")
        some = sorted(f"{kind}{each}" for each in parts.split(","))
        found[key] = sorted([*found.get(key, []), some])
    return found


def _without(parameters: Parameters, key: str) -> Parameters:
    return {name: values for name, values in parameters.items() if name != key}


def _without_status(parameters: Parameters) -> Parameters:
    [traits] = parameters[ROOT]
    left = [trait for trait in traits if trait != DISABLED]
    return _without(parameters, ROOT) | ({ROOT: [left]} if left else {})


def _compared(theirs: Any, found: Parameters, expected: Parameters) -> Answer:
    if found == expected:
        return {"answer": theirs}
    keys = sorted(found.keys() | expected.keys())
    raise AssertionError("; ".join(
        f"ours asks {key}={found.get(key)}, Nova {expected.get(key)}"
        for key in keys if found.get(key) != expected.get(key)
    ))  # fmt: skip
