"""Recorded messages, objects and cases of Nova, and refusals of what cannot be decoded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance import reading

from scheduler_worker.errors import RequestError

TESTS = Path(__file__).resolve().parents[1]
SAMPLES = TESTS / "samples" / "nova"


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def recorded(name: str) -> Any:
    """The arguments of a recorded message."""
    return sample(name)["oslo.message"]["args"]


def nova_cases() -> list[reading.Document]:
    """What Nova's own code answered, as ``tools/conformance`` reads it."""
    paths = sorted((TESTS / "cases" / "nova").glob("*.gz"))
    return [each for path in paths for each in reading.documents(path)]


def refused(decode: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The text of the error that the decoder raises."""
    with pytest.raises(RequestError) as caught:
        decode(*args, **kwargs)
    return str(caught.value)
