"""Links of the site: of Markdown files to each other, and of pages to what they name in code."""

import posixpath
import re
from collections.abc import Callable, Collection, Mapping

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<![\[`])`([^`]+)`(?![\]`])")
_LINK = re.compile(r"(?<=\]\()([\w./-]+\.md)(?=[#)])")
_OPTION = re.compile(r"\[(\w+)\]\s+(\w+)")
OPTIONS_PAGE = "options.md"


def on_the_site(text: str, page: str, of_the_root: Mapping[str, str]) -> str:
    """The Markdown of a page whose links are those of the site.

    In the repository, files of the root link to ``docs/rpc.md``, and pages to
    ``../ARCHITECTURE.md``; on the site all are below one folder. ``of_the_root`` are pages by the
    file of the root that they show.
    """
    files = {page: file for file, page in of_the_root.items()}
    base = posixpath.dirname(files.get(page, f"docs/{page}"))

    def link(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(base, match.group(1)))
        target = of_the_root.get(file)
        if target is None and file.startswith("docs/"):
            target = file.removeprefix("docs/")
        if target is None:
            return match.group(1)
        return posixpath.relpath(target, posixpath.dirname(page) or ".")

    return _outside_of_code(text, lambda part: _LINK.sub(link, part))


def linked(
    text: str, page: str, documents: Mapping[str, str], options: Collection[tuple[str, str]]
) -> str:
    """The Markdown of a page with links.

    ``documents`` are pages by the path under which documents name them (``docs/rpc.md``),
    ``options`` groups and names of those on the options' page. Blocks of code stay as they are.
    """

    def link(found: re.Match[str]) -> str:
        code = found.group(1)
        target = documents.get(code)
        option = _OPTION.match(code)
        if option and option.groups() in options:
            target = f"{OPTIONS_PAGE}#{anchor(*option.groups())}"
        if target is None or target.partition("#")[0] == page:
            return found.group()
        return f"[`{code}`]({posixpath.relpath(target, posixpath.dirname(page) or '.')})"

    return _outside_of_code(text, lambda part: _SPAN.sub(link, part))


def anchor(group: str, name: str) -> str:
    """Where an option is on its page."""
    return f"{group}-{name}".lower()


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])
