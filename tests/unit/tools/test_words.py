"""Long sentences, words that are not the field's, paths and unknown names are found."""

import ast
import tomllib
from pathlib import Path

import pytest
from words import names, rules
from words.report import Report
from words.texts import of_docstrings, of_markdown, of_messages

ROOT = Path(__file__).resolve().parents[3]
DECLARED = tomllib.loads((ROOT / "tools/words/words.toml").read_text())
TABLE = rules.words(DECLARED["words"])
LONG = " ".join(["word"] * 26)


def sentences(text):
    return [each for block in of_markdown(text) for each in block.sentences()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two!\nThree", [(1, "One."), (1, "Two!"), (2, "Three")]),
        ("See e.g. This one. End", [(1, "See e.g. This one."), (1, "End")]),
        ("A `long. Code` b", [(1, "A `` b")]),
        ("A `b\nc` d.\nE", [(1, "A `` d."), (3, "E")]),
        ("[A title](page.md#x) ends", [(1, "A title ends")]),
        ("* one\n* two\n  goes on\n\n1. three", [(1, "one"), (2, "two goes on"), (5, "three")]),
        ("# Title\n\n| a | b |\n|---|---|\n\nText", [(6, "Text")]),
        ("```ini\n[a]\nb = 1\n```\nText", [(5, "Text")]),
        ("<!-- one\ntwo -->\nText", [(3, "Text")]),
        (
            "<!-- made by `make reference`: do not edit -->\nA table.\n<!-- end -->\nText",
            [(4, "Text")],
        ),
    ],
)
def test_sentences_of_documents(text, expected):
    assert sentences(text) == expected


def test_words_are_counted_and_signs_are_not():
    [sentence] = sentences("One - two `three four` / [five six](x.md)")
    assert sentence.words == 5


SOURCE = '''"""A module.

Second sentence."""


class Kind:
    """A class.

    Raises:
        KeyError: not there.

        an.example()  # is no prose
    """

    field = 1
    """Of what."""

    def method(self):
        raise ValueError(f"No {self} here. " "Go on.")


LOG.warning("It %s." % 1 if Kind else "No.")
add(help="Some help.", title="no help")
'''


def test_docstrings_and_messages():
    tree = ast.parse(SOURCE)
    found = [each for block in of_docstrings(tree) for each in block.sentences()]
    assert sorted((each.line, each.text) for each in found) == [
        (1, "A module."),
        (3, "Second sentence."),
        (7, "A class."),
        (9, "Raises:"),
        (10, "KeyError: not there."),
        (16, "Of what."),
    ]
    texts = [each.text for block in of_messages(tree) for each in block.sentences()]
    assert sorted(texts) == ["Go on.", "It %s.", "No X here.", "No.", "Some help."]


def lines_about(text, *, share=1):
    report = Report("docs")
    report.add("page.md", list(of_markdown(f"{text}\n" + "\n\nShort." * share)), TABLE)
    return report.is_right, list(report.lines())


def test_few_long_sentences_are_permitted_and_too_many_are_named():
    is_right, [summary] = lines_about(LONG, share=24)
    assert is_right
    assert summary == (
        "docs: 25 sentences, 4.0 % over 25 words (at most 4%), 0 over 40; 0 other violations"
    )
    is_right, [line, _] = lines_about(LONG, share=23)
    assert not is_right
    assert line.startswith("page.md:1: 26 words, at most 25: word word")


def test_a_sentence_of_more_than_forty_words_is_always_named():
    is_right, [line, _] = lines_about(" ".join(["word"] * 41), share=100)
    assert not is_right
    assert line.startswith("page.md:1: 41 words")


def test_a_paragraph_has_one_semicolon_at_most():
    is_right, [line, _] = lines_about("One; two; three.")
    assert not is_right
    assert line.startswith("page.md:1: more than 1 semicolon: 'One; two")
    assert lines_about("One; two.\n\nThree; four.")[0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Look at the log; look it up.", "look"),
        ("Read it anew.", "anew"),
        ("Read it `anew`.", None),
        ("Where nothing is set, it is 1.", "Where"),
        ("Where is the log?", None),
        ("It waits, for it cannot go on.", ", for it"),
        ("It waits for it.", None),
    ],
)
def test_words_that_are_not_the_fields_are_named(text, word):
    complaints = [each.text for each in rules.wrong_words(list(of_markdown(text)), TABLE)]
    assert [each.partition(": write ")[0] for each in complaints] == ([repr(word)] if word else [])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("See `docs/rpc.md`.", "docs/rpc.md"),
        ("See [docs/rpc.md](rpc.md).", "docs/rpc.md"),
        ("See `ARCHITECTURE.md`.", "ARCHITECTURE.md"),
        ("See [RPC](rpc.md), [RPC](docs/rpc.md).", None),
        ("```\ncat docs/rpc.md\n```", None),
    ],
)
def test_paths_of_pages_are_named(text, path):
    found = [each.text.partition(" ")[0] for each in rules.paths_as_links(text)]
    assert found == ([path] if path else [])


KNOWN = names.Names(
    {"rpc": {"slots"}, "DEFAULT": {"host"}},
    {"placement"},
    {"scheduler_requests_total", "scheduler_request_seconds"},
    {"scheduler_hints"},
    {"scheduler-workerctl": {"host list", "explain"}, "scheduler-worker-manage": {"db upgrade"}},
    {"docs"},
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("`[rpc] slots = 4`, `[placement] any`, `scheduler_hints`, `make docs`", None),
        ("`[rpc] slotz`", "there is no option [rpc] slotz"),
        ("`[rcp] slots`", "there is no group [rcp]"),
        ("```ini\n[rpc]\nslots = 1\n# slotz = 1\n```", "there is no option [rpc] slotz"),
        ("```ini\n[Service]\nType = notify\n```", None),
        ("`scheduler_requests_total{x=1}` `scheduler_request_seconds_bucket`", None),
        ("`scheduler_request_total`", "there is no metric scheduler_request_total"),
        ("```\nscheduler-workerctl host list --state down\n```", None),
        ("`scheduler-workerctl --config F host list`, `scheduler-workerctl host`", None),
        ("`scheduler-workerctl hosts list`", "there is no command scheduler-workerctl hosts list"),
        ("`scheduler-workerctl help explain`", None),
        (
            "`scheduler-worker-manage explain`",
            "there is no command scheduler-worker-manage explain",
        ),
        ("`make dogs`", "there is no make dogs"),
        ("make dogs", None),
    ],
)
def test_names_that_do_not_exist_are_named(text, complaint):
    found = [each.text for each in names.unknown_names(text, KNOWN)]
    assert found == ([complaint] if complaint else [])
