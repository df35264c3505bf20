"""Answers for Nova's units: JSON lines in, JSON lines out. Run by our interpreter.

A question has the ``kind`` and what tools/conformance calls a case: ``host`` or ``hosts``,
``request_spec``, ``config``, ``aggregates``. The answer is ``{"answer": ...}``;
``{"refused": why}`` where ours refuses the request; ``{"inexpressible": why}`` where no message of
Nova's can have such content.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

import msgspec  # noqa: E402 - the lines above make what follows importable
import numpy as np  # noqa: E402
from conformance import kinds_filter, kinds_weigher, nova  # noqa: E402
from conformance.reading import Malformed  # noqa: E402

from nova_tests.witnesses import contradiction  # noqa: E402
from scheduler_worker import codec, conf  # noqa: E402
from scheduler_worker.errors import SchedulerWorkerError  # noqa: E402
from scheduler_worker.scheduling.destination import RequestedDestination, may_use  # noqa: E402
from scheduler_worker.scheduling.extra_specs import match  # noqa: E402
from scheduler_worker.scheduling.plugin import Filter, Weigher  # noqa: E402
from scheduler_worker.scheduling.prefilters.candidates_query import queries  # noqa: E402
from scheduler_worker.scheduling.prefilters.needs import needs_of  # noqa: E402
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters  # noqa: E402
from scheduler_worker.scheduling.prefilters.units import (  # noqa: E402
    Inventories,
    RequestFilters,
    ResourceProviders,
)
from scheduler_worker.service.policies.units import nova_pipeline  # noqa: E402

Question = dict[str, Any]


def of_filter(question: Question) -> dict[str, Any] | None:
    """The limits that go with the host; None: it does not pass."""
    case = msgspec.convert({**question, "expect": {}}, kinds_filter.Case)
    return kinds_filter.limits_of(case)


def of_weighers(question: Question) -> list[float]:
    """The weight of each host."""
    hosts = msgspec.convert(question["hosts"], list[nova.Host])
    pipeline = nova.pipeline(question["config"], filters=[], weighers=question["weighers"])
    spec = codec.decode_request_spec(question["request_spec"])
    return kinds_weigher.totals(pipeline, nova.table(hosts), spec)


def of_multiplier(question: Question) -> float:
    """By what a weigher's scores of a host are multiplied: a named one, or that of an option."""
    host = msgspec.convert(question["host"], nova.Host)
    weighers = question.get("weighers") or [
        name
        for name, unit in nova.WEIGHERS.items()
        if issubclass(unit, Weigher) and unit.option == question["option"]
    ]
    pipeline = nova.pipeline(question["config"], filters=[], weighers=weighers)
    [weigher] = pipeline.weights
    return float(np.broadcast_to(weigher.multiplier(nova.table([host])), 1)[0])


def of_query(question: Question) -> dict[str, str | None]:
    """What Placement is asked about a request, and what the filters decide otherwise.

    ``pins`` false: with all its CPUs shared.
    """
    filters, parameters, limit = _asking(json.dumps(question["config"]))
    spec = codec.decode_request_spec(question["request_spec"])
    aggregates = codec.decode_aggregates(question["aggregates"])
    asked = queries(spec, needs_of(spec, parameters), aggregates, limit)
    query = asked[0 if question["pins"] else -1].text
    otherwise = contradiction(query, spec, filters, question["aggregates"])
    return {"query": query, "otherwise": otherwise}


@cache
def _asking(config: str) -> tuple[Sequence[Filter], RequestFilterParameters, int]:
    """The filters that stand for Placement, their parameters, the limit of a question's answers."""
    options = nova.options(json.loads(config))
    found = nova_pipeline(options, nova.FILTERS, nova.WEIGHERS)
    kinds = (RequestFilters, Inventories, ResourceProviders)
    filters = [each for each in found.mandatory if isinstance(each, kinds)]
    return filters, found.candidates.parameters, options.values["max_placement_results"]


def of_destinations(question: Question) -> list[bool]:
    """Which hosts a request may go to, by their names alone."""
    hosts = nova.table(msgspec.convert(question["hosts"], list[nova.Host]))
    pipeline = nova.pipeline(question["config"], filters=[], weighers=[])
    spec = codec.decode_request_spec(question["request_spec"])
    [unit] = (each for each in pipeline.mandatory if isinstance(each, RequestedDestination))
    return [may_use(unit, host, spec) for host in hosts.states()]


def of_match(question: Question) -> bool:
    """Whether a value meets what an extra spec requires."""
    return match(question["value"], question["required"])


def of_options(question: Question) -> list[str]:
    """The names of the options that ours know."""
    return [option.name for _, options in conf.list_opts() for option in options]


KINDS: Mapping[str, Callable[[Question], Any]] = {
    "filter": of_filter,
    "weighers": of_weighers,
    "multiplier": of_multiplier,
    "query": of_query,
    "destinations": of_destinations,
    "match": of_match,
    "options": of_options,
}


def answer(question: Question) -> dict[str, Any]:
    try:
        return {"answer": KINDS[question.pop("kind")](question)}
    except SchedulerWorkerError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    except (Malformed, msgspec.ValidationError) as error:
        return {"inexpressible": str(error)}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
