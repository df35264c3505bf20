"""The page of the audit: who changed what, and what was there before and after."""

from playwright.sync_api import expect

from scheduler_worker.service.documents.administration import PolicyFields
from tests.support.consoles import READER
from tests.support.office import ANNA, BERT


def test_it_says_who_changed_what_from_where_and_what_was_there(api, console):
    made = api.administration.create(PolicyFields(name="packing"), ANNA)
    api.administration.update(made.document.id, PolicyFields(description="dense"), BERT)
    page = console.entered("/audit")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("bert")
    page.get_by_label("User").fill("anna")
    page.get_by_label("User").press("Enter")
    row = rows.filter(has_text="policy.create")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("10.0.0.1")
    row.get_by_text("Show").click()
    expect(row.get_by_text('"name": "packing"')).to_be_visible()
    page.reload()
    expect(page.get_by_label("User")).to_have_value("anna")
    page.get_by_label("Resource").fill("nobody")
    page.get_by_label("Resource").press("Enter")
    expect(page.locator("#found")).to_have_text("None in this time")


def test_who_may_not_read_it_is_told(api, console):
    page = console.entered("/audit", READER)
    expect(page.get_by_role("heading", name="This page cannot be shown")).to_be_visible()
    expect(page.get_by_text("is not authorized")).to_be_visible()
