"""The page of capacity: flavors that were seen and typed, counted, and what is wrong with one."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.consoles import lines, report
from tests.support.services import host, request

SMALL = {"name": "small", "vcpus": 1, "memory_mb": 1024, "root_gb": 10}
WIDE = {"name": "wide", "vcpus": 2, "memory_mb": 1024, "extra_specs": {"quota:cpu_shares": "2"}}
GPU = {"name": "gpu", "vcpus": 1, "memory_mb": 512, "extra_specs": {"pci_passthrough:alias": "a:1"}}
DEVICE = {"count": 1, "spec": [{"vendor_id": "10de", "product_id": "2235"}], "alias_name": "a"}


def ask(api: Any, name: str, flavor: dict[str, Any], **spec: Any) -> None:
    api.services.scheduler.select(
        request(name, flavor=flavor, scheduler_hints={"cluster": ["east"]}, **spec)
    )


@pytest.fixture
def asked(api):
    """Two flavors were asked for lately, the wide one last; a cluster has one host, with room."""
    ask(api, "first", SMALL | {"memory_mb": 512})
    ask(api, "second", SMALL)
    ask(api, "third", WIDE)
    report(
        api.services.inventory,
        host("d1", cluster="fresh", vcpus=12, memory_mb=8192, cpu_allocation_ratio=1.0),
    )
    api.worker.parts.recorder.write()  # its thread may do so after the page was read
    return api


def flavor(page, number):
    return page.get_by_role("group", name=f"Flavor {number}", exact=True)


def totals(page):
    return lines(page, "How many more fit")


def count(page):
    page.get_by_role("button", name="Count").click()


@pytest.mark.deep
def test_flavors_that_were_seen_are_counted_with_what_limits_them(asked, console):
    page = console.entered("/capacity")
    expect(flavor(page, 1).get_by_label("Name")).to_have_value("wide")
    expect(flavor(page, 1).get_by_label("Extra specs")).to_have_value("quota:cpu_shares=2")
    expect(flavor(page, 2).get_by_label("Memory")).to_have_value("1024")  # as it was asked last
    expect(flavor(page, 2).get_by_label("Disk (GiB)", exact=True)).to_have_value("10")
    expect(totals(page)).to_have_text(
        [re.compile(r"wide\d+VCPU\d of 7 hosts"), re.compile("small")]
    )
    fresh = lines(page, "By cluster").filter(has_text="fresh")
    expect(fresh).to_have_text("fresh6VCPU1 of 1 hostnova")
    expect(page.get_by_role("heading", name="wide")).to_be_visible()
    console.check("capacity")
    page.get_by_role("button", name="small", exact=True).click()
    expect(page.get_by_role("button", name="small")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("heading", name="small")).to_be_visible()
    expect(fresh).to_have_text("fresh8MEMORY_MB1 of 1 hostnova")
    expect(lines(page, "By zone").filter(has_text="sea")).to_have_text("harboursea0")
    expect(lines(page, "What limits it").filter(has_text="fresh")).to_have_text(
        "freshMEMORY_MB1 host0 hosts"
    )
    expect(lines(page, "What filters lose").filter(has_text="ComputeFilter")).to_contain_text(
        "west"
    )


def test_a_flavor_is_typed_counted_and_kept_in_the_address(api, console):
    page = console.entered("/capacity")
    expect(totals(page)).to_have_count(0)  # no flavor with a name was asked for
    first = flavor(page, 1)
    first.get_by_label("Name").fill("mine")
    first.get_by_label("vCPUs").fill("1")
    first.get_by_label("Memory").fill("6144")
    first.get_by_label("Extra specs").fill("quota:cpu_shares=2\nquota:cpu_period = 100")
    page.get_by_label("Cluster", exact=True).select_option("east")
    count(page)
    expect(totals(page)).to_have_count(1)
    found = totals(page).inner_text()
    assert found.startswith("mine")
    assert "of 3 hosts" in found
    page.reload()
    expect(totals(page)).to_have_text(found.replace("\t", ""))
    expect(first.get_by_label("Extra specs")).to_have_value(
        "quota:cpu_shares=2\nquota:cpu_period=100"
    )
    expect(page.get_by_label("Cluster", exact=True)).to_have_value("east")
    page.get_by_label("Zone", exact=True).fill("north")
    page.get_by_label("Boots from a volume").check()
    with page.expect_request("**/v1/capacity") as sent:
        page.get_by_label("Zone", exact=True).press("Enter")
    assert sent.value.post_data_json["spec_obj"] == {
        "scheduler_hints": {"cluster": ["east"]}, "availability_zone": "north", "is_bfv": True,
    }  # fmt: skip
    expect(page).to_have_url(re.compile("zone=north&volume=1"))
    page.reload()
    expect(page.get_by_label("Zone", exact=True)).to_have_value("north")
    expect(page.get_by_label("Boots from a volume")).to_be_checked()


@pytest.mark.deep
def test_flavors_are_added_and_removed(asked, console):
    page = console.entered("/capacity")
    expect(totals(page)).to_have_count(2)
    page.get_by_role("button", name="Remove flavor 1").click()
    expect(flavor(page, 1).get_by_label("Name")).to_have_value("small")
    page.get_by_role("button", name="Add an empty one").click()
    expect(flavor(page, 2).get_by_label("Name")).to_be_focused()
    page.get_by_role("button", name="Remove flavor 2").click()
    page.get_by_label("A flavor that was asked for lately").select_option("wide")
    page.get_by_role("button", name="Add this flavor").click()
    expect(flavor(page, 2).get_by_label("vCPUs")).to_have_value("2")
    count(page)
    expect(totals(page).locator("th")).to_have_text(["small", "wide"])


def test_what_is_wrong_is_said_at_its_field(asked, console):
    page = console.entered("/capacity")
    memory = flavor(page, 2).get_by_label("Memory")
    memory.fill("")
    count(page)
    expect(flavor(page, 2).locator(".problem")).to_have_text("is missing")
    expect(memory).to_have_attribute("aria-invalid", "true")
    expect(memory).to_be_focused()
    console.check()
    memory.fill("1024")
    specs = flavor(page, 1).get_by_label("Extra specs")
    specs.fill("trait")
    count(page)
    expect(flavor(page, 2).locator(".problem")).to_have_text("")
    expect(specs).to_have_accessible_description("expected lines key=value, got trait")
    specs.fill("")
    flavor(page, 1).get_by_label("Name").fill("small")
    count(page)
    expect(flavor(page, 2).get_by_label("Name")).to_have_accessible_description(
        "'small' is listed twice"
    )


@pytest.mark.deep
def test_many_flavors_are_folded_until_one_is_wrong(api, console):
    for number in range(6):
        ask(api, f"x{number}", SMALL | {"name": f"small{number}", "vcpus": 0})
    page = console.entered("/capacity")
    expect(totals(page)).to_have_count(6)
    expect(flavor(page, 1)).to_be_hidden()
    page.get_by_text("6 flavors").click()
    flavor(page, 3).get_by_label("Memory").fill("")
    page.get_by_text("6 flavors").click()
    count(page)
    expect(flavor(page, 3).get_by_label("Memory")).to_be_focused()


@pytest.mark.deep
def test_devices_of_an_alias_are_asked_for_beside_the_flavor(asked, console):
    ask(asked, "fourth", GPU, pci_requests={"requests": [DEVICE]})
    page = console.entered("/capacity")
    expect(flavor(page, 1)).to_contain_text("with 1 PCI device 10de:2235")
    expect(totals(page).locator("th")).to_have_text(["gpu", "wide", "small"])
    flavor(page, 2).get_by_label("vCPUs").fill("-1")
    count(page)
    expect(flavor(page, 2).get_by_label("vCPUs")).to_have_attribute("aria-invalid", "true")


@pytest.mark.deep
def test_bounds_and_clusters_that_are_not_counted_are_said(asked, console):
    counted = {
        "hosts": 3, "fitting_hosts": 2, "runs_out_first": "VCPU", "is_exact": False,
        "policy": {"id": "nova", "name": "nova", "version": 0}, "problem": None,
        "zones": {"north": None}, "limited_by": {}, "lost_to": {},
    }  # fmt: skip
    odd = {"cluster": "odd", "problem": "its policy names an unknown unit", "instances": 0}
    clusters = [counted | {"cluster": "east", "instances": 1234}, counted | odd]
    answer = {"name": "wide", "instances": 1234, "is_exact": False, "runs_out_first": "VCPU"}
    page = console.open()
    found = [answer | {"clusters": clusters}, answer | {"name": "small", "clusters": clusters[1:]}]
    page.route(
        "**/v1/capacity", lambda route: route.fulfill(json={"flavors": found, "not_asked": []})
    )
    page = console.entered("/capacity")
    expect(totals(page)).to_contain_text(["up to 1,234, 1 cluster not counted", "not counted"])
    expect(lines(page, "By cluster").last).to_contain_text("its policy names an unknown unit")
    expect(lines(page, "By zone").first).to_contain_text("any number")
