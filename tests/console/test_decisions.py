"""The pages of decisions: found, explained, asked again."""

import re

import pytest
from playwright.sync_api import expect

from scheduler_worker.errors import NoValidHost
from tests.support.consoles import report
from tests.support.services import host, request

WHY = "No host of 6 in 3 clusters; nearest is cluster east: of 3 hosts none has 99 vCPUs left."
ALIAS = "pci_passthrough:alias"


@pytest.fixture
def decided(api):
    """One was placed on a1 before; two is refused."""
    refuse(api, "two")
    return api


def refuse(api, name):
    with pytest.raises(NoValidHost):
        api.services.scheduler.select(request(name, vcpus=99, project_id="p"))


@pytest.mark.deep
def test_an_instance_is_found_by_its_uuid_and_says_why_in_one_sentence(decided, console):
    page = console.entered("/decisions")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Instance").fill("two")
    page.get_by_label("Instance").press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(WHY)
    expect(rows).to_contain_text("refused")
    rows.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Decision on two refused")).to_be_visible()
    expect(page.locator("#sentence")).to_have_text(WHY)
    expect(page.locator("#weights")).to_have_text("No host was weighed.")
    last = page.locator("#filters tbody tr").last
    expect(last.get_by_role("img", name="0 of 3 hosts")).to_be_visible()


def test_a_placed_one_has_hosts_and_the_way_to_their_pages(decided, console):
    page = console.entered("/decisions?result=placed")
    page.locator("tbody").get_by_role("link").click()
    expect(page.get_by_role("heading", name="Decision on one placed")).to_be_visible()
    page.get_by_role("button", name="Ask again now").click()
    expect(page.locator("#now")).to_contain_text("Now")
    console.check("decision")
    page.locator("#hosts").get_by_role("link", name="a1").click()
    expect(page.get_by_role("heading", name="a1 up")).to_be_visible()


@pytest.mark.deep
def test_new_decisions_appear_by_themselves(decided, console):
    page = console.entered("/decisions")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    refuse(decided, "three")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("three")


@pytest.mark.deep
def test_filters_are_in_the_address(decided, console):
    page = console.entered("/decisions")
    page.get_by_label("Result").select_option("refused")
    page.get_by_label("Time").select_option("the last hour")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Result")).to_have_value("refused")
    page.get_by_label("Project").fill("nobody")
    page.get_by_label("Project").press("Enter")
    expect(page.locator("#found")).to_have_text("None is kept")


@pytest.mark.deep
def test_older_ones_are_shown_when_they_are_asked_for(decided, console):
    for number in range(60):
        refuse(decided, f"more-{number}")
    decided.worker.parts.recorder.write()
    page = console.entered("/decisions")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Show older ones").click()
    expect(page.locator("tbody tr")).to_have_count(62)
    expect(page.locator("tbody tr").last).to_contain_text("one")


@pytest.mark.deep
def test_the_same_question_is_asked_again_now(decided, console):
    page = console.entered("/decisions?instance=two")
    page.locator("tbody").get_by_role("link").click()
    page.get_by_role("button", name="Ask again now").click()
    now = page.locator("#now")
    expect(now).to_contain_text("No host of 6 in 3 clusters; nearest is cluster ")
    report(decided.services.inventory, host("huge", cluster="east", vcpus=128))
    page.get_by_role("button", name="Ask again now").click()
    expect(now).to_contain_text("Host huge: the only one of 4 hosts that passes.")
    expect(now.get_by_role("link", name="huge")).to_be_visible()


def what_if(page):
    page.get_by_text("What if it had asked for something else?").click()
    form = page.get_by_role("form", name="What if")
    expect(form.get_by_label("Cluster")).to_be_visible()
    return form


def ask(page):
    page.get_by_role("button", name="Ask about this").click()


def test_what_if_a_request_had_asked_for_something_else(decided, console):
    page = console.entered("/decisions?instance=two")
    page.locator("tbody").get_by_role("link").click()
    form = what_if(page)
    expect(form.get_by_label("vCPUs")).to_have_value("99")
    form.get_by_label("vCPUs").fill("1")
    form.get_by_label("Cluster").select_option("east")
    ask(page)
    before = page.locator("#what-if-answer section").first
    now = page.locator("#what-if-answer section").last
    expect(before).to_contain_text(WHY)
    expect(before.get_by_role("img", name="0 of 3 hosts").first).to_be_visible()
    expect(now).to_contain_text("Host a1: first of 2 hosts")
    expect(now.get_by_role("img", name="2 of 3 hosts").first).to_be_visible()
    console.check()
    form.get_by_label("Hosts").fill("a2, a3")
    ask(page)
    expect(now).to_contain_text("Host a2: the only one")
    form.get_by_label("vCPUs").fill("3")
    ask(page)
    expect(now).to_contain_text("No host")


@pytest.mark.deep
def test_what_if_changes_only_what_was_changed(decided, console):
    asked = request(
        "three",
        flavor={"name": "m1", "vcpus": 1, "memory_mb": 256, "extra_specs": {ALIAS: "gpu:1"}},
        pci_requests={"requests": [{"count": 1, "spec": [{"vendor_id": "10de"}]}]},
        image={"id": "i", "properties": {"hw_numa_nodes": 1, "traits_required": ["A"]}},
        scheduler_hints={"same_host": ["x", "y"], "cluster": ["east"]},
        requested_destination={"host": "a1", "allow_cross_cell_move": True},
        numa_topology={"cells": [{"id": 0, "cpuset": [0], "memory": 256}]},
        ignore_hosts=("b1",),
    )
    with pytest.raises(NoValidHost):  # for the trait
        decided.services.scheduler.select(asked)
    page = console.entered("/decisions?instance=three")
    page.locator("tbody").get_by_role("link").click()
    form = what_if(page)
    before = asked_by(page)
    assert before["flavor"]["name"] == "m1"
    assert before["image"]["properties"] == {"hw_numa_nodes": 1, "traits_required": ["A"]}
    assert before["scheduler_hints"] == {"same_host": ["x", "y"], "cluster": ["east"]}
    assert before["requested_destination"]["host"] == "a1"
    assert "numa_topology" in before
    form.get_by_label("Image properties").fill("hw_numa_nodes=1\nhw_firmware_type=uefi")
    form.get_by_label("Scheduler hints").fill("")
    form.get_by_label("Hosts").fill("")
    form.get_by_label("Zone").fill("north")
    after = asked_by(page)
    changed = {"hw_numa_nodes": 1, "hw_firmware_type": "uefi"}
    assert after["image"] == {"id": "i", "properties": changed}
    assert after["scheduler_hints"] == {"cluster": ["east"]}
    assert after["requested_destination"] == {"allow_cross_cell_move": True}
    assert after["availability_zone"] == "north"
    assert "numa_topology" not in after
    assert (after["ignore_hosts"], after["flavor"]) == (["b1"], before["flavor"])
    form.get_by_label("Extra specs").fill(f"{ALIAS}=gpu:2")
    ask(page)
    expect(form.get_by_label("Extra specs")).to_have_accessible_description(
        re.compile("only Nova knows its aliases")
    )


def asked_by(page):
    with page.expect_request("**/v1/explain") as sent:
        ask(page)
    expect(page.locator("#what-if-answer section")).to_have_count(2)
    return sent.value.post_data_json["spec_obj"]


@pytest.mark.deep
def test_what_is_wrong_with_a_changed_request_is_said_at_its_field(decided, console):
    page = console.entered("/decisions?instance=two")
    page.locator("tbody").get_by_role("link").click()
    form = what_if(page)
    for label in ("vCPUs", "Memory", "Disk"):
        field = form.get_by_label(label)
        field.fill("-1")
        ask(page)
        expect(field).to_have_accessible_description(re.compile("expected an integer from 0 to"))
        expect(field).to_be_focused()
        field.fill("1")
    form.get_by_label("Scheduler hints").fill("same_host")
    ask(page)
    expect(form.get_by_label("Scheduler hints")).to_have_attribute("aria-invalid", "true")
