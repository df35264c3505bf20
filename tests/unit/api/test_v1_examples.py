"""The examples of the manual of ``/v1``."""

import shlex
from pathlib import Path

import pytest

from scheduler_worker.operations.callers import Grant
from tests.support.edges import filled
from tests.support.pages import steps

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "rest-v1.md").read_text()


EXAMPLES = [shlex.split(each.command.replace("\\\n", " ")) for each in steps(PAGE)]
"""The arguments of each."""


@pytest.mark.parametrize("example", EXAMPLES, ids=[each[-1][:60] for each in EXAMPLES])
def test_the_examples_are_served(example):
    program, *arguments = example
    assert program == "curl"
    method, body, headers, url = None, b"", {}, ""
    rest = filled()
    rest.add_user("anna", Grant("administrator"))
    while arguments:
        match arguments.pop(0):
            case "-u":
                assert arguments.pop(0) == "anna:secret"
            case "-X":
                method = arguments.pop(0)
            case "-H":
                name, _, value = arguments.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = arguments.pop(0).encode()
            case found:
                url = found.removeprefix("http://127.0.0.1:8780")
    if method == "PUT":
        rest.tuning.set("balloon", None)
    method = method or ("POST" if body else "GET")
    response = rest.request(method, url, body, headers=headers, user="anna")
    assert response.status_code in {200, 201, 202, 204}, response.get_data(as_text=True)


def test_there_are_examples():
    assert len(EXAMPLES) >= 12
