"""The code speaks of reservations, leases and cluster views, not of older words for them."""

import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scheduler_worker"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
REPLACED = {
    "promise": "reservation",
    "promised": "reserved",
    "promises": "reservations",
    "ground": "view",
    "trail": "trace",
    "whereabouts": "intents",
    "dice": "rng",
    "lane": "extra consumer",
    "lanes": "extra consumers",
    "roam": "any cluster",
    "roams": "any cluster",
    "told": "a noun that says what it is",
}
"""Words of identifiers, and what to say instead."""
PAIRS = {"head start": "priority boost", "step aside": "yield the slot"}
ON_THE_WIRE = {"promised", "promises"}
"""Names of options, of stored records and of fields that users see."""


def replaced_words(identifier: str) -> list[str]:
    """What to say instead of the replaced words in a name in snake case or camel case."""
    words = [each.lower() for each in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]
    pairs = map(" ".join, pairwise(words))
    return [
        *(REPLACED[word] for word in words if word in REPLACED),
        *(PAIRS[pair] for pair in pairs if pair in PAIRS),
    ]


@pytest.mark.parametrize(
    "identifier", ["_promised", "PromiseState", "max_head_start_s", "Ground", "told", "step_aside"]
)
def test_replaced_words_are_found(identifier):
    assert replaced_words(identifier)


@pytest.mark.parametrize("identifier", ["background", "indices", "foretold", "start_head"])
def test_other_words_are_not(identifier):
    assert not replaced_words(identifier)


def identifiers(path: Path) -> dict[str, int]:
    """Each name in a module, with its first line."""
    found: dict[str, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            found.setdefault(token.string, token.start[0])
    return found


def test_no_identifier_uses_a_replaced_word():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}: say {', '.join(replaced_words(name))}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, line in identifiers(path).items()
        if name not in ON_THE_WIRE and replaced_words(name)
    ]
    assert found == []


def test_no_module_is_named_by_a_replaced_word():
    assert [path for path in PACKAGE.rglob("*.py") if replaced_words(path.stem)] == []


IN_PROSE = re.compile(
    r"\b(promis\w+|whereabouts|head[ -]starts?|heart-beats?|dice|steps? aside|the ground of)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_uses_a_replaced_word(path):
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    if path == ROOT / "docs" / "decisions" / "README.md":  # says which older words remain
        prose = re.sub(r"\*\w+\*", "", prose)
    assert IN_PROSE.findall(prose) == []
