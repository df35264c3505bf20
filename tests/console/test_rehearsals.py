"""Rehearsals: begun on their page, before a policy is attached, and of a draft."""

import pytest
from playwright.sync_api import expect

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.rehearsals import RehearsalQuery, RehearsalRecord
from tests.support.consoles import READER
from tests.support.services import request

STRICTER = (
    "Of 5 decisions 2 come out the same; 3 would be refused, 0 would be placed, 0 would go "
    "elsewhere."
)


@pytest.fixture
def decided(api):
    """Beside the instance `one`, three more are on a1; one was refused."""
    for name in ("two", "three", "four"):
        asked = request(name, vcpus=1, requested_destination={"host": "a1"})
        api.services.scheduler.select(asked)
    with pytest.raises(NoValidHost):
        api.services.scheduler.select(request("huge", vcpus=99))
    api.worker.parts.recorder.write()
    return api


def strict(page):
    """A draft that allows one instance on a host, not stored."""
    page.get_by_label("Name").fill("strict")
    for each in ("CoreFilter", "NumInstancesFilter"):
        page.get_by_label("Add a filter").select_option(each)
        page.get_by_role("button", name="Add this filter").click()
    page.get_by_label("max_instances_per_host").fill("1")
    expect(page.locator("#verdict")).to_have_text("This policy can be stored.")


def test_a_draft_is_rehearsed_before_it_is_stored(decided, console):
    page = console.entered("/policies/new")
    strict(page)
    page.get_by_role("button", name="Rehearse").click()
    expect(page.locator("#rehearsal-result")).to_have_text(STRICTER)
    changes = page.locator("#rehearsal-changes tbody tr")
    expect(changes).to_have_count(3)
    expect(changes.first).to_contain_text("a1")
    expect(changes.first).to_contain_text(" in 3 clusters; nearest is cluster east: ")
    page.get_by_label("Changes", exact=True).select_option("moved")
    expect(changes).to_have_count(0)
    expect(page.get_by_label("Name")).to_have_value("strict")
    assert "strict" not in {
        each.document.name for each in decided.administration.library().policies()
    }


@pytest.mark.deep
def test_the_policy_of_a_cluster_is_rehearsed_before_it_is_attached(decided, console):
    page = console.entered("/policies")
    page.get_by_label("Policy of east").select_option("power_saving")
    page.get_by_role("button", name="Rehearse first for east").click()
    expect(page.get_by_role("heading", name="Rehearsals")).to_be_visible()
    expect(page.get_by_label("Cluster")).to_have_value("east")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.get_by_role("heading", name="Rehearsal", exact=True)).to_be_visible()
    expect(page.locator("main")).to_contain_text("under the policy power_saving")
    expect(page.locator("#rehearsal-result")).to_contain_text("Of 5 decisions")
    attached = {
        each.cluster: each.policy_id for each in decided.administration.library().attachments()
    }
    tried = decided.administration.library().policy_called("power_saving").document.id
    assert attached.get("east") != tried


@pytest.mark.deep
def test_hosts_that_take_no_more_and_the_way_to_the_decisions(decided, console):
    page = console.entered("/rehearsals")
    page.get_by_label("Hosts that take no more").fill("a1")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.locator("#rehearsal-state")).to_contain_text("done")
    expect(page.locator("main")).to_contain_text("without a1")
    console.check("rehearsal")
    page.locator("#rehearsal-changes").get_by_role("link", name="two").click()
    expect(page.get_by_role("heading", name="Decision on two placed")).to_be_visible()


def test_what_is_wrong_is_said(decided, console):
    page = console.entered("/rehearsals")
    page.get_by_label("Hosts that take no more").fill("nowhere")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.locator("#rehearsal-state")).to_contain_text(
        "failed: host: there is no host 'nowhere'"
    )
    page.get_by_role("button", name="Remove this result").click()
    expect(page.locator("main")).to_contain_text("It was removed.")
    page.get_by_role("link", name="Rehearsals").first.click()
    expect(page.locator("main")).to_contain_text("There is none.")


@pytest.mark.deep
def test_one_that_runs_shows_how_far_it_is_and_can_be_cancelled(decided, console):
    records = decided._rehearsals.records
    running = records_with(records, state="deciding", read=9, done=3, total=9)
    page = console.entered(f"/rehearsals/{running.id}")
    expect(page.locator("main")).to_contain_text("3 of 9 decisions")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#rehearsal-state")).to_contain_text("cancelled by ")
    assert records.find(running.id)[0].state == "cancelled"


def records_with(records, **fields):
    """The record of a rehearsal that another process runs."""
    asked, now_s = RehearsalQuery(since_s=0.0, until_s=1.0), records.now_s()
    record = RehearsalRecord(id="elsewhere", user="anna", begun_at_s=now_s, asked=asked, **fields)
    records.add(record)
    return record


@pytest.mark.deep
def test_readers_see_results_and_begin_none(decided, console):
    records_with(decided._rehearsals.records)
    page = console.entered("/rehearsals", user=READER)
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Rehearse")).to_have_count(0)
    page.locator("tbody").get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("0 decisions read")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
