"""Print what is wrong with the words of documents, docstrings and messages: ``tools/words``.

``tools/words PATH...`` reads these files alone.
"""

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / "tools"), str(ROOT)]

from words import names, report, rules  # noqa: E402 - the line above makes it importable
from words.texts import of_docstrings, of_markdown, of_messages  # noqa: E402

declared = tomllib.loads(Path(__file__).with_name("words.toml").read_text())
table = rules.words(declared["words"])
known = names.known(ROOT, declared["no_metrics"], declared["libraries"])
documents = report.Report("docs")
docstrings = report.Report("docstrings")
messages = report.Report("messages")

paths = [Path(each).resolve() for each in sys.argv[1:]] or report.files(ROOT)
for path in paths:
    place, text = str(path.relative_to(ROOT)), path.read_text()
    if path.suffix == ".md":
        if not place.startswith((*declared["generated"], *declared["old"])):
            documents.add(place, list(of_markdown(text)), table)
        if not place.startswith(tuple(declared["old"])):
            documents.complain(place, rules.paths_as_links(text))
            documents.complain(place, names.unknown_names(text, known))
    else:
        tree = ast.parse(text)
        docstrings.add(place, list(of_docstrings(tree)), table)
        messages.add(place, list(of_messages(tree)), table)

reports = (documents, docstrings, messages)
for each in reports:
    print(*each.lines(), sep="\n")
sys.exit(0 if all(each.is_right for each in reports) else 1)
