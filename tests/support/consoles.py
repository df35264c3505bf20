"""A cloud to look at in the console, and a browser that reports whatever goes wrong in a page."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright

from scheduler_worker import conf
from scheduler_worker.compose.api import ApiProcess
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.service.inventory.inventory import Inventory
from tests.support.patience import SOON_S
from tests.support.servers import program
from tests.support.services import host
from tests.support.topologies import host_cell, pages
from tests.support.web import PASSWORD, users_file
from tests.support.workers import load_config

SIZE: Any = {"width": 1280, "height": 900}
"""Of a window, and of a picture."""
SCHEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
AXE = Path(__file__).resolve().parents[1] / "console" / "axe" / "axe.min.js"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
ADMINISTRATOR, READER = "anna", "rita"
CELLS = {
    "cells": [
        host_cell(
            number, cores=4, socket=number, memory=32768, memory_usage=8192,
            cpuset=[8 * number + 2 + cpu for cpu in range(6)],
            pcpuset=[8 * number, 8 * number + 1], pinned_cpus=[8 * number],
            mempages=pages((2048, 1024), used=256),
        )
        for number in (0, 1)
    ]
}  # fmt: skip
POOLS = [{"vendor_id": "10de", "product_id": "2235", "numa_node": 1, "count": 3}]


def configured(directory: Path, **groups: Any) -> conf.Configuration:
    """The configuration of an API with an administrator and a reader, on a free port."""
    users = users_file(directory, anna="administrator", rita="reader")
    settings: dict[str, Any] = {
        "DEFAULT": {"service_down_time": 3600, "host": "w1"},
        "policy_store": {"connection": f"sqlite:///{directory / 'policies.sqlite'}"},
        "api": {"port": 0, "users_file": users},
        "filter_scheduler": {"enabled_filters": "ComputeFilter,CoreFilter,RamFilter"},
    }
    for name, options in groups.items():
        settings[name] = settings.get(name, {}) | options
    return load_config(directory / "console.conf", **settings)


def report(inventory: Inventory, *hosts: dict[str, Any]) -> None:
    inventory.update_hosts([msgspec.convert(each, HostReport) for each in hosts])


def fill(inventory: Inventory) -> None:
    """Three clusters in three zones: one host has cells and devices, one is down, one disabled."""
    inventory.update_aggregates(
        [
            Aggregate(id=number, hosts=names, metadata={"availability_zone": zone})
            for number, (zone, names) in enumerate(
                {"north": ("a1", "a2", "a3"), "south": ("b1", "b2"), "sea": ("c1",)}.items(), 1
            )
        ]
    )
    hosts = [
        host("a1", cluster="east", vcpus=16, numa_topology=CELLS, pci_device_pools=POOLS),
        host("a2", cluster="east", vcpus_used=3, memory_mb_used=6144, local_gb_used=40),
        host("a3", cluster="east", vcpus_used=4, memory_mb_used=8192, instances=[]),
        host("b1", cluster="west", vcpus_used=2, service={"disabled": True}),
        host("b2", cluster="west", service={"forced_down": True}),
        host("c1", cluster="harbour", vcpus_used=6, memory_mb_used=2048),
    ]
    report(inventory, *({**each, "cpu_allocation_ratio": 1.0} for each in hosts))


def take_picture(config: pytest.Config, page: Page, name: str) -> None:
    """Write a picture for the documentation anew, where ``--console-images`` asks for it."""
    if config.getoption("console_images"):
        IMAGES.mkdir(exist_ok=True)
        page.screenshot(path=IMAGES / f"console-{name}.png")


def lines(page: Page, name: str) -> Locator:
    """The rows of a table."""
    return page.get_by_role("region", name=name).locator("tbody tr")


def rows(page: Page, name: str) -> dict[str, list[str]]:
    """The texts of a table's rows, by their first cells."""
    cells = [each.locator("th,td").all_inner_texts() for each in lines(page, name).all()]
    return {first.strip(): [each.strip() for each in rest] for first, *rest in cells}


@contextlib.contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Debian's Chromium. Raises ServerMissing."""
    # As root, which CI is, Chromium has no sandbox; the pages are ours.
    found = playwright.chromium.launch(
        executable_path=program("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
    )
    try:
        yield found
    finally:
        found.close()


class Console:
    """A page of the console in a browser session of its own."""

    def __init__(self, browser: Browser, api: ApiProcess, config: pytest.Config) -> None:
        self._config = config
        self.root = api.console_url
        self.context: BrowserContext = browser.new_context(viewport=SIZE)
        self.context.set_default_timeout(1000 * SOON_S)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self._check_host(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        # What the API refuses is an error to the browser; the tests look at what the page makes
        # of it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _check_host(self, url: str) -> None:
        if not url.startswith(self.root.removesuffix("/console")):
            self.complaints.append(f"asks another host: {url}")

    def open(self, path: str = "") -> Page:
        self.page.goto(self.root + path)
        return self.page

    def log_in(self, user: str = ADMINISTRATOR, password: str = PASSWORD) -> Page:
        """Fill in the form and send it."""
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        return self.page

    def entered(self, path: str = "", user: str = ADMINISTRATOR) -> Page:
        """A page of the console, for a user who has logged in; not by the form, to be quick."""
        credentials = {"user": user, "password": PASSWORD}
        self.context.request.post(f"{self.root}/session", data=credentials)
        self.open(path)
        self.page.get_by_role("button", name="Log out").wait_for()
        return self.page

    def check(self, picture: str = "") -> None:
        """Nothing keeps people out, by axe, in dark and light; a narrow page scrolls not aside.

        The page may be a picture.
        """
        self.page.evaluate(AXE.read_text())
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            serious = [
                (scheme, each["id"], [node["html"] for node in each["nodes"]])
                for each in self.page.evaluate("axe.run()")["violations"]
                if each["impact"] in {"serious", "critical"}
            ]
            assert serious == [], f"{self.page.url}: {serious}"
        if picture:
            take_picture(self._config, self.page, picture)
        self.page.set_viewport_size({"width": 360, "height": 740})
        assert self.page.evaluate("document.documentElement.scrollWidth") <= 360, self.page.url
        self.page.set_viewport_size(SIZE)
