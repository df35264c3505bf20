"""Recorded messages and objects of Nova, and refusals of what cannot be decoded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.errors import RequestError

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "nova"


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def recorded(name: str) -> Any:
    """The arguments of a recorded message."""
    return sample(name)["oslo.message"]["args"]


def refused(decode: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The text of the error that the decoder raises."""
    with pytest.raises(RequestError) as caught:
        decode(*args, **kwargs)
    return str(caught.value)
