"""A host's page."""

import pytest
from playwright.sync_api import expect

from tests.support.consoles import report
from tests.support.services import host, request, reservations_of


def test_a_host_has_facts_cells_and_devices(console):
    page = console.entered("/hosts/uuid-a1")
    expect(page.get_by_role("heading", name="a1 up")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("north")
    expect(page.locator("#use tbody tr").first).to_contain_text("2 vCPU")
    cells = page.locator("#numa .cell")
    expect(cells).to_have_count(2)
    expect(cells.first.get_by_role("img", name="8 CPUs, 1 of them pinned")).to_be_visible()
    expect(cells.first.locator(".cpu.pinned")).to_have_text(["0"])
    expect(cells.first.locator(".core")).to_have_count(4)
    expect(page.locator("#devices")).to_contain_text("10de:2235 at cell 1")
    expect(page.locator("#devices .device.free")).to_have_count(3)
    page.get_by_text("Everything that was reported").click()
    expect(page.locator("pre")).to_contain_text('"numa_topology"')


def test_a_name_reorders_no_text_and_hides_nothing(api, console):
    name = "\u202eZürich\u200b"
    report(api.services.inventory, host(name, uuid="odd", cluster="east"))
    page = console.entered("/hosts/odd")
    expect(page.locator("h1")).to_contain_text(r"\u202eZürich\u200b")
    page.get_by_text("Everything that was reported").click()
    for text in (page.inner_text("body"), page.title()):
        assert all(each.isprintable() or each in "\n\t" for each in text)


@pytest.mark.deep
def test_a_host_that_is_not_up_says_why(console):
    page = console.entered("/hosts/b2")
    expect(page.get_by_role("heading", name="b2 down")).to_be_visible()
    expect(page.get_by_text("its compute service is forced down")).to_be_visible()
    page.get_by_role("link", name="Cluster west").click()
    expect(page.locator("#found")).to_have_text("2 of 6 hosts")


def test_a_reservation_is_shown_with_the_time_that_is_left_and_released(api, console):
    page = console.entered("/hosts/uuid-a1")
    row = page.locator("#reservations tbody tr")
    expect(row).to_contain_text("one")
    expect(row).to_contain_text("min")  # of its time left
    page.get_by_role("button", name="Release").click()
    console.check()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(1)
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(page.get_by_text("Nothing is reserved.")).to_be_visible()
    assert reservations_of(api.worker.fleet) == []


@pytest.mark.deep
def test_instances_that_are_reported_appear(api, console):
    page = console.entered("/hosts/uuid-a2")
    expect(page.get_by_text("None is reported.")).to_be_visible()
    report(
        api.services.inventory,
        host("a2", cluster="east", instances=[{"uuid": "two"}, {"uuid": "three"}]),
    )
    expect(page.locator("#instances li")).to_have_text(["three", "two"])


def fit(page):
    page.get_by_text("Would this flavor fit here").click()
    return page.get_by_role("form", name="Would a flavor fit")


@pytest.mark.deep
def test_a_flavor_fits_or_the_filter_that_refuses_it_is_said(api, console):
    api.services.scheduler.select(
        request("two", flavor={"name": "m1", "vcpus": 1, "memory_mb": 512, "root_gb": 5})
    )
    api.worker.parts.recorder.write()  # its thread may do so after the page was read
    page = console.entered("/hosts/uuid-a2")
    form = fit(page)
    form.get_by_label("A flavor that was asked for lately").select_option("m1")
    expect(form.get_by_label("Memory")).to_have_value("512")
    ask = form.get_by_role("button", name="Would it fit?")
    ask.click()
    answer = page.locator("#fits")
    expect(answer).to_contain_text("Yes: its weight is")
    expect(answer.get_by_role("row").filter(has_text="RAMWeigher")).to_be_visible()
    console.check()
    form.get_by_label("vCPUs").fill("2")
    ask.click()
    expect(answer).to_contain_text("No: CoreFilter: ")
    form.get_by_label("Memory").fill("")
    ask.click()
    expect(form.get_by_label("Memory")).to_have_accessible_description("is missing")


@pytest.mark.deep
def test_the_last_decisions_that_chose_a_host_are_shown(api, console):
    page = console.entered("/hosts/a1")
    lately = page.locator("#lately tbody tr")
    expect(lately).to_have_count(1)
    expect(lately).to_contain_text("one")
    api.services.scheduler.select(request("two", requested_destination={"host": "a1"}))
    expect(lately).to_have_count(2)
    expect(lately.first).to_contain_text("two")
    lately.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Decision on two placed")).to_be_visible()
    page.goto(console.root + "/hosts/b1")
    expect(page.locator("#lately")).to_contain_text("None that is kept chose it.")
