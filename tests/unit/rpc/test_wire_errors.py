"""The wire form of errors, encoded and decoded."""

import json

import pytest

from scheduler_worker import errors
from scheduler_worker.errors import (
    AllocationUpdateFailed,
    ClusterLockTimeout,
    ConfigError,
    InternalError,
    Invalid,
    NoValidHost,
    PlacementConflict,
    PlacementRefused,
    PlacementUnavailable,
    RequestError,
    StateUnavailable,
)
from scheduler_worker.rpc.wire_errors import from_wire, to_wire
from tests.support.samples import sample


def test_no_valid_host_is_novas():
    recorded = sample("failure_no_valid_host")
    wire = to_wire(NoValidHost("There are not enough hosts available."))
    assert (wire.module, wire.class_name) == (recorded["module"], recorded["class"])
    assert (wire.message, wire.args) == (recorded["message"], recorded["args"])
    assert wire.kwargs == recorded["kwargs"]


@pytest.mark.parametrize(
    "error",
    [
        RequestError("spec_obj.flavor", "is missing: all of it"),
        Invalid("filters.Memory", "is used twice: once is enough"),
        ClusterLockTimeout("c1: not granted within 5 s"),
        StateUnavailable(
            "The shared state cannot be used by the worker now; its log says why. Try again"
        ),
        InternalError("see the log"),
    ],
)
def test_our_errors_can_be_rebuilt(error):
    wire = to_wire(error)
    assert wire.module == "scheduler_worker.errors"
    by_args = getattr(errors, wire.class_name)(*wire.args, **wire.kwargs)
    by_message = from_wire(wire.module, wire.class_name, wire.message)
    for rebuilt in (by_args, by_message):
        assert type(rebuilt) is type(error)
        assert str(rebuilt) == str(error)
        assert vars(rebuilt) == vars(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.EditConflict("Policy packing", "anna", 3),
        errors.InUse("Policy packing", ["east"]),
        errors.NameTaken("packing"),
        errors.NotFound("policy", "packing"),
    ],
)
def test_a_refused_change_keeps_its_class_and_its_sentence(error):
    wire = to_wire(error)
    rebuilt = from_wire(wire.module, wire.class_name, wire.message)
    assert (type(rebuilt), str(rebuilt)) == (type(error), str(error))


@pytest.mark.parametrize("kind", [StateUnavailable, errors.ArchiveUnavailable])
def test_the_address_of_a_service_is_hidden_from_callers(kind):
    wire = to_wire(kind("What is at redis1:6379 cannot be used: no write"))
    assert "redis1" not in json.dumps([wire.message, wire.args, wire.kwargs])
    assert wire.class_name == kind.__name__


@pytest.mark.parametrize(
    "error",
    [KeyError("rabbit://guest:guest@broker"), ConfigError("x")],
)
def test_other_errors_become_internal_errors_without_details(error):
    wire = to_wire(error, "req-1")
    assert (wire.module, wire.class_name) == ("scheduler_worker.errors", "InternalError")
    assert str(error) not in wire.message
    assert "req-1" in wire.message
    assert wire.args == [wire.message]
    assert "request id" not in to_wire(error).message


def test_foreign_errors_keep_their_name():
    error = from_wire("nova.exception", "Invalid", "no such thing")
    assert isinstance(error, InternalError)
    assert str(error) == "Invalid: no such thing"


def test_a_request_error_without_a_field():
    error = from_wire("scheduler_worker.errors", "RequestError", "odd")
    assert (error.field, error.problem) == ("request", "odd")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "error",
    [
        PlacementUnavailable("connection refused"),
        PlacementRefused("401 Unauthorized"),
        PlacementConflict("uuid-a"),
    ],
)
def test_without_placement_there_is_no_valid_host_as_in_nova(error):
    wire = to_wire(error)
    assert (wire.module, wire.class_name) == ("nova.exception", "NoValidHost")
    assert wire.message == f"No valid host was found. {error}"
    assert wire.kwargs == {"reason": str(error), "code": 500}


def test_a_claim_that_is_in_the_way_of_another_is_novas():
    error = AllocationUpdateFailed("i1", "consumer generation conflict - expected 1. Error: no")
    wire = to_wire(error)
    assert (wire.module, wire.class_name) == ("nova.exception", "AllocationUpdateFailed")
    assert wire.kwargs == {"consumer_uuid": "i1", "error": error.problem, "code": 500}
    rebuilt = from_wire(wire.module + "_Remote", wire.class_name + "_Remote", wire.message)
    assert isinstance(rebuilt, AllocationUpdateFailed)
    assert (rebuilt.consumer, rebuilt.problem) == (error.consumer, error.problem)
