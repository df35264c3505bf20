"""The fleet: clusters, zones, the heat map, filters, and hosts that come while one looks."""

import json

import pytest
from playwright.sync_api import expect

from tests.support.consoles import report, rows
from tests.support.services import host

COLOURS = """() => {
  const canvas = document.getElementById("heat-map");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
  }
  return [...found];
}"""


def test_clusters_and_zones_are_summed_up(console):
    page = console.entered()
    page.get_by_role("heading", name="Fleet").wait_for()
    clusters = rows(page, "Clusters")
    assert clusters["east"][:4] == ["nova", "3", "0", "0"]
    assert clusters["east"][4] == "38 %"  # 7 used and 2 reserved of 24
    assert clusters["east"][-1] == "1"
    assert clusters["west"][1:4] == ["0", "1", "1"]
    assert rows(page, "Zones")["sea"][3] == "150 %"


def test_hosts_are_searched_filtered_and_sorted_and_the_address_keeps_it(console):
    page = console.entered()
    expect(page.locator("#found")).to_have_text("6 of 6 hosts")
    page.get_by_label("Cluster", exact=True).select_option("east")
    expect(page.locator("#found")).to_have_text("3 of 6 hosts")
    page.get_by_label("Sort by").select_option("cpu")
    assert list(rows(page, "Hosts as a table")) == ["a3", "a2", "a1"]
    page.get_by_label("Search", exact=True).fill("a2")
    expect(page.locator("#found")).to_have_text("1 of 6 hosts")
    page.reload()
    expect(page.locator("#found")).to_have_text("1 of 6 hosts")
    expect(page.get_by_label("Search", exact=True)).to_have_value("a2")
    page.get_by_label("Search", exact=True).fill("")
    page.get_by_label("Cluster", exact=True).select_option("")
    page.get_by_label("State", exact=True).select_option("down")
    expect(page.locator("#found")).to_have_text("1 of 6 hosts")
    page.get_by_label("State", exact=True).select_option("")
    page.get_by_label("Zone", exact=True).select_option("south")
    expect(page.locator("#found")).to_have_text("2 of 6 hosts")


@pytest.mark.deep
@pytest.mark.parametrize("measure", ["cpu", "memory", "disk", "reserved", "age", "state"])
def test_the_heat_map_has_the_colours_of_each_measure(console, measure):
    page = console.entered(f"/fleet?colour={measure}")
    page.get_by_role("heading", name="Fleet").wait_for()
    colours = page.evaluate(COLOURS)
    low = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--low')")
    empty = ",".join(str(int(low.strip()[at : at + 2], 16)) for at in (1, 3, 5))
    if measure != "age":  # some seconds may have passed
        assert empty in colours  # of a host that is empty, or up
    assert len(colours) > 2


@pytest.mark.deep
def test_pointing_at_a_cell_tells_of_its_host_and_a_click_opens_it(console):
    page = console.entered("/fleet?group=none")
    canvas = page.locator("#heat-map")
    canvas.wait_for()
    canvas.hover(position={"x": 5, "y": 30})
    expect(page.locator(".tip")).to_contain_text(
        "a1: cpu 13 % of 16 vCPU; 0 instances, 1 reservation"
    )
    canvas.click(position={"x": 5, "y": 30})
    expect(page).to_have_url(f"{console.root}/hosts/uuid-a1")
    page.go_back()
    expect(page.locator("#found")).to_have_text("6 of 6 hosts")


@pytest.mark.deep
def test_hosts_that_report_later_appear_by_themselves(api, console):
    page = console.entered()
    expect(page.locator("#found")).to_have_text("6 of 6 hosts")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    report(api.services.inventory, host("c2", cluster="harbour"))
    expect(page.locator("#found")).to_have_text("7 of 7 hosts")
    assert list(rows(page, "Hosts as a table"))[-1] == "c2"


@pytest.mark.deep
def test_ten_thousand_hosts_are_shown(console):
    number = 10_000
    columns = {
        "uuid": [f"uuid-{each}" for each in range(number)],
        "name": [f"host-{each:05}" for each in range(number)],
        "cluster": [f"c{each % 3}" for each in range(number)],
        "zone": [f"z{each % 3}" for each in range(number)],
        "state": ["up"] * number,
        "age_s": [each % 60 for each in range(number)],
        "instances": [3] * number,
        "reservations": [0] * number,
    }
    use = {
        "limit": [100] * number,
        "used": [each % 101 for each in range(number)],
        "reserved": [0] * number,
    }
    columns |= dict.fromkeys(("vcpus", "memory_mb", "disk_mb"), use)
    page = console.entered("/nothing")
    page.route("**/v1/fleet", lambda route: route.fulfill(json=columns))
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("#found")).to_have_text("10,000 of 10,000 hosts")
    assert len(page.evaluate(COLOURS)) > 60
    page.get_by_label("Search", exact=True).fill("host-0123")
    expect(page.locator("#found")).to_have_text("10 of 10,000 hosts")
    page.get_by_label("Search", exact=True).fill("")
    page.locator("#heat-map").focus()
    page.keyboard.press("End")
    expect(page.locator("#pointed")).to_contain_text("host-09998: cpu")  # the last of c2


def test_what_a_host_reports_is_never_markup(api, console):
    name = "<img src=x onerror=window.didRun=1>"
    report(api.services.inventory, host(name, cluster="east"))
    page = console.entered("/fleet?q=img")
    expect(page.get_by_role("link", name=name)).to_be_visible()
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert page.evaluate("window.didRun") is None


@pytest.mark.deep
def test_an_answer_that_is_refused_is_told(console):
    page = console.entered("/nothing")
    problem = {"status": 403, "detail": "User anna is not authorized: the user has no right."}
    page.route(
        "**/v1/fleet",
        lambda route: route.fulfill(
            status=403, content_type="application/problem+json", body=json.dumps(problem)
        ),
    )
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("alert").filter(has_text="not authorized")).to_be_visible()
