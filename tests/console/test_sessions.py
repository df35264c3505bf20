"""Logging in and out, what ends a session, and what a page may do."""

import pytest
from playwright.sync_api import expect

from tests.support.consoles import READER
from tests.support.web import PASSWORD


def test_a_wrong_password_is_told_and_the_right_one_logs_in(console):
    page = console.open()
    page.get_by_role("heading", name="Log in").wait_for()
    console.check()
    console.log_in(password="wrong password")
    expect(page.get_by_role("alert").filter(has_text="not correct")).to_be_visible()
    console.check()
    console.log_in()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(page.get_by_text("anna")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def test_logging_out_ends_the_session(console):
    page = console.entered()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("You have logged out.")).to_be_visible()
    assert console.context.cookies() == []
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.deep
def test_an_invitation_logs_in_once_and_leaves_the_address(api, console, make_console):
    link = f"#invitation={api.api.console.invitations.invite('anna')}"
    page = console.open(link)
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    assert "invitation" not in page.url
    other = make_console(api).open(link)
    expect(other.get_by_role("alert").filter(has_text="used already")).to_be_visible()
    expect(other.get_by_role("heading", name="Log in")).to_be_visible()


def test_an_expired_session_asks_for_another_log_in_and_goes_on_there(api, console):
    page = console.entered("/hosts/uuid-a2")
    expect(page.get_by_role("heading", name="a2", exact=False).first).to_be_visible()
    [cookie] = console.context.cookies()
    api.api.sessions.revoke(cookie["value"])
    expect(page.get_by_text("Your session has ended.")).to_be_visible()
    expect(page.get_by_role("link", name="Fleet")).to_have_count(0)
    console.log_in()
    expect(page.get_by_role("heading", name="a2", exact=False).first).to_be_visible()


@pytest.mark.deep
def test_a_reader_is_not_offered_what_the_api_would_refuse(api, console, make_console):
    page = console.entered("/hosts/uuid-a1")
    expect(page.get_by_role("button", name="Release")).to_be_visible()
    page = make_console(api).entered("/hosts/uuid-a1", READER)
    expect(page.get_by_role("heading", name="Reservations")).to_be_visible()
    expect(page.get_by_role("cell", name="held")).to_be_visible()
    expect(page.get_by_role("button", name="Release")).to_have_count(0)


@pytest.mark.deep
def test_an_address_without_a_page_or_without_a_resource_says_so(console):
    page = console.entered("/decisions/1-0@default")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    console.open("/hosts/nobody")
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="nobody")).to_be_visible()
    console.open("/nothing/here")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


@pytest.mark.deep
def test_keys_alone_log_in_and_open_a_host(console):
    page = console.open()
    page.get_by_label("User").wait_for()
    for text in ("anna", PASSWORD):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    page.locator("#heat-map").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        page.keyboard.press(key)
    expect(page.locator("#pointed")).to_contain_text("b2, down: cpu")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="b2")).to_be_visible()
