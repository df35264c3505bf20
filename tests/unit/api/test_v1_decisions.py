"""``/v1/decisions``: pages of records, and one with all that is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from scheduler_worker.errors import NoValidHost
from tests.support.rest import Rest


@pytest.fixture
def rest() -> Rest:
    found = Rest("east", "west")
    found.world.place("one", project_id="p", scheduler_hints={"cluster": ["east"]})
    found.records.recorder.write()
    found.world.clock.advance(60)
    with pytest.raises(NoValidHost):
        found.world.place("two", vcpus=99)
    found.records.recorder.write()
    return found


def get(rest: Rest, path: str, status: int = 200, **options: Any) -> Any:
    response = rest.request("GET", f"/v1/decisions{path}", **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def instances(page: Any) -> list[str]:
    return [uuid for each in page["items"] for uuid in each["instances"]]


def test_they_are_listed_newest_first_page_by_page(rest):
    first = get(rest, "?limit=1")
    assert instances(first) == ["two"]
    second = rest.request("GET", first["next"]).get_json()
    assert instances(second) == ["one"]
    assert second["next"] is None


def test_they_are_filtered(rest):
    began = datetime.fromtimestamp(rest.world.clock.time_s(), UTC)
    later = quote((began - timedelta(seconds=30)).isoformat())
    for asked, expected in (
        ("cluster=east", ["two", "one"]),  # the refusal is of the cluster that was tried first
        ("cluster=west", []),
        ("instance=two", ["two"]),
        ("project=p", ["one"]),
        ("result=refused", ["two"]),
        ("host=host-east", ["one"]),
        ("host=host-west", []),
        (f"since={later}", ["two"]),
        (f"until={later}", ["one"]),
    ):
        assert instances(get(rest, f"?{asked}")) == expected, asked


def test_one_is_shown_with_request_filters_ranking_and_waits(rest):
    [outline] = get(rest, "?instance=one")["items"]
    found = get(rest, f"/{quote(outline['id'])}")
    assert found.items() >= outline.items()
    assert found["decided_at"] == "2023-11-14T22:13:20Z"
    assert found["spec"]["project_id"] == "p"
    assert [each["host"] for each in found["ranked"]] == ["host-east"]
    assert found["filters"][0]["hosts_in"] == 1
    assert found["selections"] == [[{"host": "host-east", "nodename": "host-east"}]]


@pytest.mark.parametrize("id", ["1-1@east", "nonsense"])
def test_an_id_that_is_not_kept_is_not_found(rest, id):
    assert "no kept decision" in get(rest, f"/{id}", 404)["detail"]


def test_a_marker_that_is_none_is_named(rest):
    [problem] = get(rest, "?marker=x", 400)["errors"]
    assert problem["parameter"] == "marker"


def test_only_readers_see_them(rest):
    rest.add_user("nobody")
    get(rest, "", 403, user="nobody")
    get(rest, "/1-1@east", 403, user="nobody")


def test_where_none_are_kept_the_option_is_named():
    rest = Rest("east", keeps_records=False)
    for path in ("", "/1-1@east"):
        assert "[decisions] enabled is false" in get(rest, path, 404)["detail"]
