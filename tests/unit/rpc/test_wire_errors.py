"""What callers see of errors, and what clients make of it."""

import json
from pathlib import Path

import pytest

from scheduler_worker import errors
from scheduler_worker.errors import (
    ClusterLockTimeout,
    ConfigError,
    InternalError,
    NoValidHost,
    RequestError,
    StateUnavailable,
)
from scheduler_worker.rpc.wire_errors import from_wire, to_wire

SAMPLES = Path(__file__).parents[2] / "samples" / "nova"


def test_no_valid_host_is_novas():
    recorded = json.loads((SAMPLES / "failure_no_valid_host.json").read_text())
    wire = to_wire(NoValidHost("There are not enough hosts available."))
    assert (wire.module, wire.class_name) == (recorded["module"], recorded["class"])
    assert (wire.message, wire.args) == (recorded["message"], recorded["args"])
    assert wire.kwargs == recorded["kwargs"]


@pytest.mark.parametrize(
    "error",
    [
        RequestError("spec_obj.flavor", "is missing: all of it"),
        ClusterLockTimeout("c1: not granted within 5 s"),
        StateUnavailable("redis is away"),
        InternalError("the log knows"),
    ],
)
def test_ours_can_be_rebuilt(error):
    wire = to_wire(error)
    assert wire.module == "scheduler_worker.errors"
    by_args = getattr(errors, wire.class_name)(*wire.args, **wire.kwargs)
    by_message = from_wire(wire.module, wire.class_name, wire.message)
    for again in (by_args, by_message):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_no_valid_host_can_be_rebuilt():
    error = NoValidHost("All gone.")
    wire = to_wire(error)
    again = from_wire(wire.module, wire.class_name, wire.message)
    assert isinstance(again, NoValidHost)
    assert (again.reason, str(again)) == ("All gone.", str(error))


def test_empty_reasons_survive():
    wire = to_wire(NoValidHost(""))
    assert wire.message == "No valid host was found. "
    assert from_wire(wire.module, wire.class_name, wire.message).reason == ""


@pytest.mark.parametrize(
    "error",
    [KeyError("rabbit://guest:guest@broker"), ConfigError("x")],
)
def test_everything_else_is_internal_and_says_nothing(error):
    wire = to_wire(error, "req-1")
    assert (wire.module, wire.class_name) == ("scheduler_worker.errors", "InternalError")
    assert str(error) not in wire.message
    assert "req-1" in wire.message
    assert wire.args == [wire.message]
    assert "request id" not in to_wire(error).message


def test_foreign_errors_keep_their_name():
    error = from_wire("oslo_messaging.rpc.dispatcher", "UnsupportedVersion", "no 4.6 here")
    assert isinstance(error, InternalError)
    assert str(error) == "UnsupportedVersion: no 4.6 here"


def test_names_of_classes_rebuilt_by_oslo_messaging():
    error = from_wire("nova.exception_Remote", "NoValidHost_Remote", "No valid host was found. X")
    assert isinstance(error, NoValidHost)


def test_a_request_error_without_a_field():
    error = from_wire("scheduler_worker.errors", "RequestError", "odd")
    assert (error.field, error.problem) == ("request", "odd")
