"""Pages stay while the API is away, and go on when it is back; sessions are in Redis."""

from playwright.sync_api import expect

from scheduler_worker.compose.api import build_api
from tests.support.consoles import configured, fill, report
from tests.support.servers import free_port
from tests.support.services import host


def test_a_page_survives_a_restart_of_the_api(tmp_path, redis_url, make_console):
    options = {"state": {"url": redis_url}, "api": {"port": free_port()}}
    settings = configured(tmp_path, **options)
    with build_api(settings).running() as api:
        fill(api.services.inventory)
        console = make_console(api)
        page = console.entered()
        expect(page.locator("#found")).to_have_text("6 of 6 hosts")
    expect(page.get_by_role("status").filter(has_text="Reconnecting")).to_be_visible()
    expect(page.locator("#found")).to_have_text("6 of 6 hosts")
    with build_api(settings).running() as api:
        report(api.services.inventory, host("c2", cluster="harbour"))
        expect(page.locator("#found")).to_have_text("7 of 7 hosts")
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
