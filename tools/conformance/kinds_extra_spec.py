"""The grammar of extra-spec requirements: a value, a requirement, whether it is met."""

from collections.abc import Iterator
from typing import Any

from scheduler_worker.scheduling.extra_specs import match


def recognise(document: Any) -> bool:
    return isinstance(document, dict) and {"value", "req"} <= document.keys()


def run(case: Any) -> Iterator[str]:
    try:
        found = match(case["value"], case["req"])
    except ValueError as error:
        if "raises" not in case:
            yield f"{case['req']!r} of {case['value']!r} is refused: {error}"
        return
    if "raises" in case:
        yield f"{case['req']!r} of {case['value']!r} is {found}, where Nova raises {case['raises']}"
    elif found != case["result"]:
        yield f"{case['req']!r} of {case['value']!r} is {found}; recorded is {case['result']}"
