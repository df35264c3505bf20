"""Unwrapping of Nova's objects, their known fields, and redaction."""

import pytest

from scheduler_worker import codec
from scheduler_worker.codec import kinds
from scheduler_worker.codec.primitives import ObjectKind
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.model.requests import Destination
from tests.support.samples import refused, sample

SCHEMA = sample("object_schema")
KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, ObjectKind) and kind.name]


def with_parts(known):
    for kind in known:
        yield kind
        yield from with_parts(part for part in kind.parts.values() if part.name)


@pytest.mark.parametrize("kind", list(with_parts(KINDS)), ids=lambda kind: kind.name)
def test_every_field_and_version_of_nova_is_known(kind):
    schema = SCHEMA[kind.name]
    assert kind.version == schema["version"]
    if kind.list_version:
        assert kind.list_version == SCHEMA[kind.list_name]["version"]
    if kind.read is not None:
        assert set(schema["fields"]) <= set(kind.read) | set(kind.ignored)
    assert set(kind.never_null) <= {
        name for name, presence in schema["fields"].items() if presence == "set or absent"
    }


def test_objects_anywhere():
    inner = {
        "nova_object.name": "Whatever",
        "nova_object.namespace": "elsewhere",
        "nova_object.version": "7.3",
        "nova_object.data": {"b": [1, None]},
    }
    listed = {
        "nova_object.name": "WhateverList",
        "nova_object.version": "1.0",
        "nova_object.data": {"objects": [inner, 5]},
    }
    assert codec.plain({"a": [inner, {"c": inner}], "d": listed}, "x") == {
        "a": [{"b": [1, None]}, {"c": {"b": [1, None]}}],
        "d": [{"b": [1, None]}, 5],
    }


def test_plain_values_pass_through():
    value = {"a": [1, 2.5, "x", None, True, {"b": {}}]}
    assert codec.plain(value, "x") == value
    assert codec.plain(3, "x") == 3


def test_a_list_object_without_elements():
    empty = {"nova_object.name": "XList", "nova_object.version": "1.0", "nova_object.data": {}}
    assert codec.plain(empty, "x") == []


def test_a_list_object_with_something_else():
    bad = {
        "nova_object.name": "XList",
        "nova_object.version": "1.0",
        "nova_object.data": {"objects": 3},
    }
    assert refused(codec.plain, bad, "x") == "x.objects: expected a list, got 3"


def test_redacted():
    shown = codec.redacted(
        {
            "auth_token": "T",
            "_context_auth_token": "T",
            "nested": [{"password": "p", "user": "u"}],
            "cell": {"database_connection": "mysql://a:b@c", "transport_url": "r", "uuid": "x"},
            "url": "rabbit://user:pa@ss@host:5672/v",
            "token": 17,
        }
    )
    assert shown == {
        "auth_token": "***",
        "_context_auth_token": "***",
        "nested": [{"password": "***", "user": "u"}],
        "cell": {"database_connection": "***", "transport_url": "***", "uuid": "x"},
        "url": "rabbit://***@host:5672/v",
        "token": 17,
    }


def test_redacted_structs():
    assert codec.redacted(Destination(host="rabbit://u:p@h/"))["host"] == "rabbit://***@h/"
    assert codec.redacted(FencingToken(7, "e")) == {"number": 7, "epoch": "e"}


def test_redaction_stops_at_a_depth():
    deep = value = []
    for _ in range(1000):
        value.append([])
        value = value[0]
    assert "..." in repr(codec.redacted(deep))
