"""Policies: reading, making, ordering, checking while one types, saving, attaching, restoring."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from scheduler_worker.compose.api import build_embedded
from tests.support import sandboxes
from tests.support.consoles import READER, configured

UNITS = Path(__file__).resolve().parents[2] / "examples" / "external_units"


def made(page, name="packed", filters=("ComputeFilter", "RamFilter", "CoreFilter")):
    """A policy that is made by hand; the page shows it afterwards."""
    page.get_by_label("Name").fill(name)
    for each in filters:
        page.get_by_label("Add a filter").select_option(each)
        page.get_by_role("button", name="Add this filter").click()
    page.get_by_label("Add a weight").select_option("RAMWeigher")
    page.get_by_role("button", name="Add this weight").click()
    page.get_by_label("Factor of RAMWeigher").fill("-1.5")
    expect(page.locator("#verdict")).to_have_text("This policy can be stored.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    return page


def order(page):
    return page.locator("ol.uses li .name").all_inner_texts()


def stored(api, name="packed"):
    return api.administration.library().policy_called(name).document


@pytest.mark.deep
def test_policies_have_marks_and_units_are_described(console):
    page = console.entered("/policies")
    policies = page.get_by_role("region", name="All policies")
    row = policies.get_by_role("row").filter(has=page.get_by_role("link", name="none", exact=True))
    expect(row).to_contain_text("locked")
    expect(policies.locator(".state.up")).to_have_text(["default"])
    units = page.get_by_role("region", name="Filters").get_by_role("row")
    expect(units.filter(has_text="RamFilter").first).to_contain_text("memory", ignore_case=True)


def test_a_policy_is_made_and_ordered_by_keys_and_by_dragging(api, console):
    page = made(console.entered("/policies/new"))
    assert [each.unit for each in stored(api).filters] == order(page)
    assert stored(api).weights[0].factor == -1.5
    page.get_by_role("button", name="Up CoreFilter").focus()
    page.keyboard.press("Enter")
    assert order(page) == ["ComputeFilter", "CoreFilter", "RamFilter"]
    expect(page.get_by_role("button", name="Up CoreFilter")).to_be_focused()
    lines = page.locator("ol.uses li")
    lines.nth(2).drag_to(lines.nth(0))
    assert order(page) == ["RamFilter", "ComputeFilter", "CoreFilter"]
    page.get_by_label("When CoreFilter is asked").select_option("first")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Version 2")).to_be_visible()
    assert [each.unit for each in stored(api).filters] == order(page)
    assert stored(api).ordered_filters[0].unit == "CoreFilter"


@pytest.mark.deep
def test_parameters_are_checked_while_one_types(console):
    page = console.entered("/policies")
    policies = page.get_by_role("region", name="All policies")
    policies.get_by_role("button", name="Clone evenly_distributed").click()
    expect(page.get_by_label("Name")).to_have_value("evenly_distributed copy")
    page.get_by_label("HighUtilization").fill("many")
    expect(page.locator("#problem-HighUtilization")).to_contain_text("must match")
    expect(page.locator("#verdict")).to_contain_text("HighUtilization")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="HighUtilization")).to_be_visible()
    page.get_by_label("HighUtilization").fill("70")
    expect(page.locator("#problem-HighUtilization")).to_be_empty()
    expect(page.locator("#verdict")).to_have_text("This policy can be stored.")


@pytest.mark.deep
def test_a_change_is_seen_in_the_history_and_taken_back(api, console):
    page = made(console.entered("/policies/new"))
    page.get_by_label("Factor of RAMWeigher").fill("2")
    page.get_by_role("button", name="Remove CoreFilter").click()
    page.get_by_role("button", name="Save").click()
    history = page.get_by_role("region", name="Changes, the latest first")
    latest = history.locator("tbody tr").first
    expect(latest).to_contain_text("filter CoreFilter removed")
    expect(latest).to_contain_text("weight RAMWeigher, factor: -1.5 → 2")
    expect(latest).to_contain_text("anna")
    page.get_by_role("button", name="Restore version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(page.get_by_text("Version 3")).to_be_visible()
    assert [each.unit for each in stored(api).filters] == [
        "ComputeFilter",
        "RamFilter",
        "CoreFilter",
    ]


@pytest.mark.deep
def test_any_two_versions_are_compared(console):
    page = made(console.entered("/policies/new"))
    for version, factor in (2, "2"), (3, "-1.5"):
        page.get_by_label("Factor of RAMWeigher").fill(factor)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text(f"Version {version}; clusters")).to_be_visible()
    differences = page.get_by_role("status", name="Differences")
    expect(differences).to_have_text("weight RAMWeigher, factor: 2 → -1.5")
    page.get_by_label("Version", exact=True).select_option("0")
    expect(differences).to_have_text("They are equal.")
    page.get_by_label("compared with").select_option("1")
    expect(differences).to_have_text("weight RAMWeigher, factor: -1.5 → 2")
    console.check("")


@pytest.mark.deep
def test_a_change_that_another_made_meanwhile_is_not_overwritten(api, console, make_console):
    page = made(console.entered("/policies/new"))
    other = make_console(api).entered("/policies/" + stored(api).id)
    other.get_by_label("Factor of RAMWeigher").fill("3")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_text("Version 2")).to_be_visible()
    page.get_by_label("Factor of RAMWeigher").fill("4")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="has changed in the meantime")).to_be_visible()
    assert stored(api).weights[0].factor == 3.0


def test_a_cluster_is_attached_and_its_policy_is_then_not_removed(api, console):
    made(console.entered("/policies/new"))
    page = console.page
    page.get_by_role("link", name="Policies").first.click()
    page.get_by_label("Policy of east").select_option("packed")
    page.get_by_role("button", name="Attach east").click()
    policies = page.get_by_role("region", name="All policies")
    row = policies.get_by_role("row").filter(has=page.get_by_role("link", name="packed"))
    expect(row).to_contain_text("east")
    page.get_by_role("button", name="Remove packed").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("alert").filter(has_text="east")).to_be_visible()
    page.get_by_label("Policy of east").select_option("nova")
    page.get_by_role("button", name="Attach east").click()
    expect(row).not_to_contain_text("east")
    page.get_by_role("link", name="east", exact=True).click()
    rows = page.get_by_role("region", name="Its policies, the latest first").locator("tbody tr")
    expect(rows).to_contain_text(["nova", "packed"])
    expect(rows.last).to_contain_text("anna127.0.0.1")
    page.get_by_role("link", name="packed").click()
    changes = page.get_by_role("region", name="Changes, the latest first").locator("tbody tr")
    texts = ["detached from east", "attached to east", "created"]
    expect(changes).to_contain_text([f"anna127.0.0.1{text}" for text in texts])
    page.get_by_role("link", name="Policies").first.click()
    page.get_by_role("button", name="Remove packed").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(policies.get_by_role("link", name="packed")).to_have_count(0)


@pytest.mark.deep
def test_a_reader_reads_only(api, console, make_console):
    made(console.entered("/policies/new"))
    page = make_console(api).entered("/policies", READER)
    expect(page.get_by_role("link", name="packed")).to_be_visible()
    for name in ("Clone", "Remove", "Attach"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("link", name="packed").click()
    expect(page.get_by_label("Name")).to_be_disabled()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)


@pytest.fixture
def with_units(tmp_path):
    """An API whose directory of external units has one."""
    with sandboxes.directory() as folder:
        shutil.copy(UNITS / "spare_hosts.py", folder)
        (folder / "spare_hosts.py").chmod(0o644)
        units = {"directory": folder, "python": sandboxes.PYTHON, "isolation": ""}
        settings = configured(tmp_path, external_units=units)
        with build_embedded(settings).running() as api:
            yield api


@pytest.mark.deep
def test_a_unit_from_a_file_is_enabled_and_disabled(with_units, make_console):
    page = make_console(with_units).entered("/policies")
    filters = page.get_by_role("region", name="Filters")
    filters.get_by_role("button", name="Enable SpareHosts").click()
    filters.get_by_role("button", name="Disable SpareHosts").click()
    expect(filters.get_by_role("button", name="Enable SpareHosts")).to_be_visible()
