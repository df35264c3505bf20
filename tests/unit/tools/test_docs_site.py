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


def test_an_option_is_shown_with_its_bounds_default_and_choices():
    page = options.page()
    facts = "integer value; at least 1; at most 200; default: `10`"
    assert f"### `threads` {{#api-threads}}\n\n*{facts}*" in page
    assert "\n* `fifo`: first come, first served\n" in page
