"""Links and the page of options, which the site of the documentation has."""

import pytest
from docs_site import links, options

DOCUMENTS = {"docs/rpc.md": "rpc.md", "README.md": "index.md"}
OPTIONS = {("rpc", "slots")}


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("see `docs/rpc.md`.", "state.md", "see [`docs/rpc.md`](rpc.md)."),
        ("see `docs/rpc.md`.", "decisions/1.md", "see [`docs/rpc.md`](../rpc.md)."),
        ("see `docs/rpc.md`.", "rpc.md", "see `docs/rpc.md`."),
        ("`README.md`", "rpc.md", "[`README.md`](index.md)"),
        ("`[rpc] slots = 4`", "rpc.md", "[`[rpc] slots = 4`](options.md#rpc-slots)"),
        ("`[rpc]\nslots`", "rpc.md", "[`[rpc]\nslots`](options.md#rpc-slots)"),
        ("`[rpc] slotz`, `docs/no.md`", "rpc.md", "`[rpc] slotz`, `docs/no.md`"),
        ("[`docs/rpc.md`](x.md)", "state.md", "[`docs/rpc.md`](x.md)"),
        ("```\n`docs/rpc.md`\n```\n", "state.md", "```\n`docs/rpc.md`\n```\n"),
    ],
)
def test_what_a_page_names_becomes_a_link(text, page, expected):
    assert links.linked(text, page, DOCUMENTS, OPTIONS) == expected


OF_THE_ROOT = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md"}


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("[RPC](docs/rpc.md#errors)", "index.md", "[RPC](rpc.md#errors)"),
        ("[Architecture](../ARCHITECTURE.md)", "rpc.md", "[Architecture](architecture.md)"),
        ("[Home](../../README.md)", "decisions/1.md", "[Home](../index.md)"),
        ("[Architecture](ARCHITECTURE.md)", "index.md", "[Architecture](architecture.md)"),
        ("[State](state.md)", "rpc.md", "[State](state.md)"),
        ("[units](../examples/policy_units/README.md)", "rpc.md", None),
        ("[elsewhere](https://example.org/a.md)", "rpc.md", None),
        ("```\n[RPC](docs/rpc.md)\n```\n", "index.md", None),
    ],
)
def test_links_of_the_repository_become_those_of_the_site(text, page, expected):
    assert links.on_the_site(text, page, OF_THE_ROOT) == (expected or text)


def test_an_option_is_shown_with_its_bounds_default_and_choices():
    page = options.page()
    facts = "integer value; at least 1; at most 200; default: `10`"
    assert f"### `threads` {{#api-threads}}\n\n*{facts}*" in page
    assert "\n* `fifo`: first come, first served\n" in page


def test_every_option_is_shown_once():
    headings = [each for each in options.page().splitlines() if each.startswith("### ")]
    assert len(headings) == len(set(headings)) == len(options.names())
