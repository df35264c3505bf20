"""Errors about a field say all that it accepts."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from scheduler_worker.codec.typed import typed
from scheduler_worker.errors import RequestError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct):
    share: Annotated[float, Meta(gt=0, le=1)]


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("the number is odd")


class Outer(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1, le=9)] = 1
    least: Annotated[int, Meta(ge=1)] | None = None
    mode: Literal["on", "off"] | None = None
    colour: Colour = Colour.RED
    at: Annotated[datetime, Meta(tz=True)] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=5)] = "x"
    pair: tuple[int, str] = (1, "")
    even: Even | None = None
    of: dict[str, list[Inner]] = {}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"limit": 0}, "limit: expected an integer from 1 to 9, got 0"),
        ({"limit": "x"}, "limit: expected an integer from 1 to 9, got 'x'"),
        ({"least": 0}, "least: expected an integer >= 1 or null, got 0"),
        ({"mode": "x"}, "mode: expected one of 'off', 'on' or null, got 'x'"),
        ({"colour": "x"}, "colour: expected one of 'red', 'blue', got 'x'"),
        ({"at": "x"}, "at: expected a time with its zone (2026-01-31T12:00:00Z) or null, got 'x'"),
        ({"name": ""}, "name: expected text of length from 1 to 5, got ''"),
        ({"pair": [1]}, "pair: expected a list of length 2, got a list"),
        ({"of": {"a": [{"share": 0}]}}, "of.a[0].share: expected a number > 0 and <= 1, got 0"),
        ({"even": {"number": 1}}, "even: the number is odd"),
        ([], ": expected an object, got a list"),
    ],
)  # fmt: skip
def test_an_error_says_what_a_field_accepts(value, problem):
    with pytest.raises(RequestError) as raised:
        typed(value, Outer, "")
    assert str(raised.value).removeprefix(".") == problem
