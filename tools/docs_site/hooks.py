"""Called by MkDocs (mkdocs.yml): adds generated pages, makes links, weighs pages for the search."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tools") not in sys.path:
    sys.path.insert(0, str(ROOT / "tools"))

from docs_site import links, options  # noqa: E402 - the lines above make it importable

OF_THE_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
}
DECISIONS = "decisions/README.md"
SEARCH_BOOST = {
    "Start": 2.0,
    "Nova": 2.0,
    "Own cluster": 2.0,
    "Operate": 2.0,
    "Policies": 1.5,
    "Reference": 0.6,
    "Contributors": 0.2,
}
"""How much a hit counts, by the section of its page in the navigation: guides before references."""
KEYWORDS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())["keywords"]
"""Words by which the search finds a page beside those of its titles and text."""


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {page: (ROOT / path).read_text() for path, page in OF_THE_ROOT.items()}
    for page, text in {**pages, links.OPTIONS_PAGE: options.page()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Link what the page names; the page of decisions lists them."""
    path = page.file.src_uri
    page.meta.setdefault("search", _search(path, page))
    if keywords := KEYWORDS.get(path.removesuffix(".md")):
        page.meta["tags"] = keywords
    if path == DECISIONS:
        markdown += _decisions(files)
    documents = {f"docs/{each.src_uri}": each.src_uri for each in files.documentation_pages()}
    markdown = links.on_the_site(markdown, path, OF_THE_ROOT)
    return links.linked(markdown, path, {**documents, **OF_THE_ROOT}, options.names())


def _search(path: str, page: Any) -> dict[str, Any]:
    """What the search plugin reads of a page: whether it is left out, or how much it counts."""
    if path.startswith("decisions/") or path == OF_THE_ROOT["CHANGELOG.md"]:
        return {"exclude": True}
    section = page.ancestors[-1].title if page.ancestors else ""
    return {"boost": SEARCH_BOOST.get(section, 1.0)}


def _decisions(files: Files) -> str:
    found = sorted(
        (documentation_page.src_uri.removeprefix("decisions/"), documentation_page.content_string)
        for documentation_page in files.documentation_pages()
        if re.match(r"decisions/\d", documentation_page.src_uri)
    )
    titles = [(path, text.partition("\n")[0].lstrip("# ")) for path, text in found]
    return "\n\n" + "\n".join(f"* [{title}]({path})" for path, title in titles) + "\n"
