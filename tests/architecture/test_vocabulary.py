"""Names say reservation, lease and cluster view, not older words; prose is read by tools/words."""

import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "scheduler_worker"
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


def test_replaced_words_are_found_and_no_others():
    replaced = ["_promised", "PromiseState", "max_head_start_s", "Ground", "told", "step_aside"]
    others = ["background", "indices", "foretold", "start_head"]
    assert [each for each in (*replaced, *others) if replaced_words(each)] == replaced


def test_no_identifier_uses_a_replaced_word():
    complaints = [
        f"{path}:{token.start[0]}: say {', '.join(replaced_words(token.string))}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME and token.string not in ON_THE_WIRE
        if replaced_words(token.string)
    ]
    assert complaints == []
