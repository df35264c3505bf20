"""A real API process with a worker inside, and pages of its console in a real browser."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from scheduler_worker.compose.api import ApiProcess, build_embedded
from tests.support.consoles import Console, chromium, configured, fill
from tests.support.patience import SOON_S
from tests.support.services import request


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of the module: Playwright's event loop is not left to other tests."""
    expect.set_options(timeout=1000 * SOON_S)
    with sync_playwright() as playwright, chromium(playwright) as found:
        yield found


@pytest.fixture
def api(tmp_path) -> Iterator[ApiProcess]:
    """With six hosts, and a reservation on the first."""
    with build_embedded(configured(tmp_path)).running() as found:
        fill(found.services.inventory)
        asked = request("one", vcpus=2, requested_destination={"host": "a1"})
        found.services.scheduler.select(asked)
        yield found


@pytest.fixture
def make_console(browser, pytestconfig) -> Iterator[Callable[[ApiProcess], Console]]:
    """Opens the console of an API; afterwards no page may have complained."""
    opened: list[Console] = []

    def make(api: ApiProcess) -> Console:
        opened.append(Console(browser, api, pytestconfig))
        return opened[-1]

    yield make
    for each in opened:
        each.context.close()
    assert [text for each in opened for text in each.complaints] == []


@pytest.fixture
def console(api, make_console) -> Console:
    return make_console(api)
