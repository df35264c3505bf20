"""Decoding of small arguments."""

import msgspec
import pytest

from scheduler_worker import codec
from scheduler_worker.codec.typed import check_characters
from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import MAX_INSTANCES
from tests.support.samples import refused


def test_instance_uuids():
    assert codec.decode_instance_uuids(None) is None
    assert codec.decode_instance_uuids([]) == ()
    assert codec.decode_instance_uuids(["a", "b"]) == ("a", "b")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("abc", "instance_uuids: expected a list of uuids, got 'abc'"),
        ({"a": 1}, "instance_uuids: expected a list of uuids, got an object"),
        (["a", 3], "instance_uuids[1]: expected text of length from 1 to 255, got 3"),
        (["a", ""], "instance_uuids[1]: expected text of length from 1 to 255, got ''"),
        (["a" * 256], "instance_uuids[0]: expected text of length from 1 to 255"),
        (["a", "b", "a"], "instance_uuids: 'a' is listed twice"),
        (["a"] * (MAX_INSTANCES + 1), "instance_uuids: at most 10000 instances, got 10001"),
    ],
)
def test_bad_instance_uuids(value, problem):
    assert refused(codec.decode_instance_uuids, value).startswith(problem)


def test_patience():
    assert codec.decode_remaining(None) is None
    assert codec.decode_remaining(2) == 2.0
    for bad in (0, -1.0, True, "1", float("nan"), float("inf")):
        assert refused(codec.decode_remaining, bad).startswith("deadline_s: expected a number")


def test_a_type_of_the_callers_choice():
    class Target(msgspec.Struct, forbid_unknown_fields=True):
        topic: str

    assert codec.decode_as(Target, {"topic": "t"}, "reply_to").topic == "t"
    assert refused(codec.decode_as, Target, {}, "reply_to") == "reply_to.topic: is missing"
    assert refused(codec.decode_as, Target, {"topic": "t", "x": 1}, "reply_to") == (
        "reply_to.x: is not known here"
    )


@pytest.mark.parametrize("code", range(0x21))
def test_control_characters_are_found_in_names_and_texts(code):
    character = chr(code)
    is_one = code < 0x20 and character not in "\t\n\r"
    for value in ({"a": ["x" + character]}, {"a": {character: 1}}, {"a": 2**70, "b": character}):
        if is_one:
            with pytest.raises(RequestError, match="holds a control character"):
                check_characters(value)
        else:
            check_characters(value)


def test_an_escape_that_is_written_out_is_no_control_character():
    check_characters({"a": "\\u0001"})
