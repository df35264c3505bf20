"""The documentation builds as a site, strictly; its search finds what operators ask."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_site import options
from docs_site.links import anchor
from playwright.sync_api import sync_playwright

from tests.support.consoles import chromium

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = tomllib.loads((ROOT / "tools/docs_site/questions.toml").read_text())["questions"]
SITE = "http://docs.example/"
SEARCH = """async questions => {
    const index = await (await fetch("search/search_index.json")).json();
    const config = JSON.parse(document.getElementById("__config").textContent);
    const worker = new Worker(config.search);
    const answer = message => new Promise(resolve => {
        worker.onmessage = event => resolve(event.data);
        worker.postMessage(message);
    });
    await answer({type: 0, data: {...index, options: {suggest: false}}});
    const found = {};
    for (const question of questions) {
        const result = await answer({type: 2, data: question});
        found[question] = result.data.items.map(hits => hits[0].location.split("#")[0]);
    }
    return found;
}"""
"""Messages of the search worker: 0 sets it up, 2 asks; a result has the hits of each page."""


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict"]
    command += ["--config-file", str(config), "--site-dir", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_search_has_every_page_but_decisions_and_the_changelog(site):
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    searched = {each["location"].partition("#")[0] for each in entries}
    for path in (ROOT / "docs").rglob("*.md"):
        page = str(path.relative_to(ROOT / "docs").with_suffix(".html"))
        page = page.replace("README", "index")
        assert (site / page).is_file()
        assert (page in searched) == (not page.startswith("decisions/")), page
    assert {"index.html", "architecture.html", "options.html"} <= searched
    assert "changelog.html" not in searched


def test_guides_count_more_than_references_in_the_search(site):
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    boost = {each["location"]: each.get("boost") or 1 for each in entries}
    assert boost["troubleshooting.html"] > boost["rpc.html"] > boost["state.html"]


def test_every_option_has_its_place(site):
    text = (site / "options.html").read_text()
    places = {anchor(*each) for each in options.names()}
    assert len(places) > 100
    assert places <= set(re.findall(r'id="([\w-]+)"', text))


def test_what_documents_name_is_linked(site):
    text = (site / "configuration.html").read_text()
    assert 'href="options.html#rpc-slots"><code>[rpc] slots</code>' in text
    text = (site / "decisions/index.html").read_text()
    assert 'href="0034-around-the-worker.html">34. What runs around the worker' in text


def test_a_page_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*https?://[^>]*>", page.read_text())
        assert [each for each in loaded if 'rel="canonical"' not in each] == [], page


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[there](nowhere.md)", "'nowhere.md'"),
        ("[there](#nowhere)", "'#nowhere'"),
        ("`[rpc] slots` and [there](options.md#nowhere)", "'options.md#nowhere'"),
    ],
)
def test_a_broken_link_fails(tmp_path, text, complaint):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(f"# Page\n\n{text}\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {tmp_path / 'docs'}\nnav: [page.md]\n"
        f"hooks: [{ROOT / 'tools/docs_site/hooks.py'}]\n"
    )
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if "page.md" in line and complaint in line]


@pytest.fixture(scope="module")
def hits(site) -> Iterator[dict[str, list[str]]]:
    """Each question, and the pages that the site's own search finds, the best first."""
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = browser.new_page()
        page.route(
            f"{SITE}**",
            lambda route: route.fulfill(path=site / route.request.url.removeprefix(SITE)),
        )
        page.goto(f"{SITE}index.html")
        yield page.evaluate(SEARCH, list(QUESTIONS))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_page_among_the_first_hits(hits, question):
    assert f"{QUESTIONS[question]}.html" in hits[question][:3], hits[question][:10]
