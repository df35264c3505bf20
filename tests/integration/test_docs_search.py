"""What operators type into the search of the site finds the page that answers it.

The site's own search worker runs in a browser, over the index of the built site.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from playwright.sync_api import sync_playwright

from tests.conftest import needing_servers
from tests.integration.test_docs_site import ROOT, build
from tests.support.consoles import chromium

DECLARED = tomllib.loads((ROOT / "tools" / "docs_site" / "questions.toml").read_text())
QUESTIONS = DECLARED["questions"]
SITE = "http://docs.example/"
FIRST_HITS = 3
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


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Each question, and the pages that the search finds, the best first."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    with needing_servers(), sync_playwright() as playwright, chromium(playwright) as browser:
        page = browser.new_page()
        page.route(
            f"{SITE}**",
            lambda route: route.fulfill(path=folder / route.request.url.removeprefix(SITE)),
        )
        page.goto(f"{SITE}index.html")
        yield page.evaluate(SEARCH, list(QUESTIONS))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_page_among_the_first_hits(hits, question):
    assert f"{QUESTIONS[question]}.html" in hits[question][:FIRST_HITS], hits[question][:10]


def test_decisions_and_the_changelog_are_no_hits(hits):
    found = {page for pages in hits.values() for page in pages}
    assert found
    assert not [page for page in found if page.startswith(("decisions/", "changelog"))]
