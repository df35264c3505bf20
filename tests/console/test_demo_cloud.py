"""``make console``: one line with a URL, which opens without a further log-in."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.consoles import take_picture
from tests.support.patience import PROCESS_S, SOON_S

TOOL = Path(__file__).resolve().parents[2] / "tools" / "console"


@pytest.mark.deep
def test_the_url_of_the_demo_cloud_shows_hosts_and_reservations(browser, tmp_path, pytestconfig):
    log = tmp_path / "log"
    command = [sys.executable, str(TOOL), "--port", "0"]
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"console: (http://127\.0\.0\.1:\d+/console#invitation=\S+)\n", line)
        assert found, log.read_text()
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.set_default_timeout(1000 * SOON_S)
        page.goto(found[1])
        expect(page.locator("#found")).to_have_text("1,000 of 1,000 hosts", timeout=1000 * SOON_S)
        clusters = page.get_by_role("region", name="Clusters").locator("tbody tr")
        expect(clusters).to_have_count(3)
        reservations = clusters.locator("td:last-child")
        expect(reservations.filter(has_text=re.compile("[1-9]")).first).to_be_visible(
            timeout=1000 * SOON_S
        )
        take_picture(pytestconfig, page, "fleet")
        page.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROCESS_S) == 0, log.read_text()
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.communicate()
