"""The form of an answer that a header ``Accept`` asks for."""

import pytest

from scheduler_worker.http_server.negotiation import preferred

XML, JSON = "application/xml", "application/json"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", XML), ("*/*", XML), ("application/*", XML),
        (JSON, JSON), ("APPLICATION/JSON", JSON), (f"{JSON}; charset=utf-8", JSON),
        (f"{JSON};version=1;q=0.1", JSON), (f"{XML};q=0.5, {JSON}", JSON),
        (f"{JSON}, {XML}", JSON), (f"{XML}, {JSON}", XML), (f"*/*;q=0.1, {JSON};q=0.2", JSON),
        (f"*/*, {XML};q=0", JSON), (f"{JSON};q=0", None), ("image/png", None), ("json", None),
    ],
)  # fmt: skip
def test_the_form_that_is_preferred(accept, form):
    assert preferred(accept, [XML, JSON]) == form
