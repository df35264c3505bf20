"""Nova's filters, weighers and matching of extra specs, answered by ours."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

from nova import weights as base_weights
from nova.scheduler import filters, host_manager, utils, weights
from nova.scheduler.filters import extra_specs_ops
from nova_tests.inside.asking import Answer, Ours, replace
from nova_tests.inside.expressing import host, request_spec


def replace_all(ours: Ours) -> None:
    _replace_filters(ours)
    _replace_weighers(ours)
    _replace_multipliers(ours)
    _replace_matching(ours)
    _replace_destinations(ours)


def _replace_filters(ours: Ours) -> None:
    for filter_class in _classes(filters, filters.BaseHostFilter):

        def ask(theirs: object, unit: Any, state: Any, spec: Any) -> Answer:
            question = {
                "filter": type(unit).__name__,
                "config": ours.options(),
                "host": host(state),
                "request_spec": request_spec(spec),
            }
            answer = ours.ask("filter", question)
            if "answer" in answer:
                return {"answer": answer["answer"] is not None}
            return answer

        replace(ours, filter_class, "host_passes", ask)


def _replace_weighers(ours: Ours) -> None:
    def totals(
        theirs: Any, handler: Any, weighers: Any, obj_list: Any, weighing_properties: Any
    ) -> Answer:
        units, states, spec = weighers, obj_list, weighing_properties
        if len(states) < 2:  # Nova asks no weigher then
            return {"answer": theirs}
        question = {
            "weighers": [type(unit).__name__ for unit in units],
            "config": ours.options(),
            "hosts": [host(each) for each in states],
            "request_spec": request_spec(spec),
        }
        answer = ours.ask("weighers", question)
        if "answer" not in answer:
            return answer
        weighed = [
            handler.object_class(state, weight)
            for state, weight in zip(states, answer["answer"], strict=True)
        ]
        return {"answer": sorted(weighed, key=lambda each: each.weight, reverse=True)}

    replace(ours, base_weights.BaseWeightHandler, "get_weighed_objects", totals)


def _replace_multipliers(ours: Ours) -> None:
    def of_weigher(theirs: object, unit: Any, state: Any) -> Answer:
        question = {
            "weighers": [type(unit).__name__],
            "config": ours.options(),
            "host": host(state),
        }
        return ours.ask("multiplier", question)

    for weigher_class in _classes(weights, weights.BaseHostWeigher):
        replace(ours, weigher_class, "weight_multiplier", of_weigher)

    def of_option(theirs: object, state: Any, name: str, default: float) -> Answer:
        question = {
            "option": name,
            "config": {f"filter_scheduler.{name}": default},
            "host": host(state),
        }
        return ours.ask("multiplier", question)

    replace(ours, utils, "get_weight_multiplier", of_option)


def _replace_matching(ours: Ours) -> None:
    def match(theirs: object, value: Any, required: Any) -> Answer:
        return ours.ask("match", {"value": value, "required": required})

    replace(ours, extra_specs_ops, "match", match)


def _replace_destinations(ours: Ours) -> None:
    """Destinations, ignored and forced hosts; the filters of these tests are fakes."""

    def allowed(theirs: Any, manager: Any, hosts: Any, spec_obj: Any, index: int = 0) -> Answer:
        states = list(hosts)
        question = {
            "config": {},
            "hosts": [host(state) for state in states],
            "request_spec": request_spec(spec_obj),
        }
        answer = ours.ask("destinations", question)
        if "answer" not in answer:
            return answer
        passed = answer["answer"]
        return {"answer": [state for state, may in zip(states, passed, strict=True) if may]}

    replace(ours, host_manager.HostManager, "get_filtered_hosts", allowed)


def _classes(package: Any, kind: type) -> Iterator[type]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for _, each in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
            if issubclass(each, kind) and each.__module__ == found.name:
                yield each
