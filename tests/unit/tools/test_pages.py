"""What the tests read of pages with commands."""

from tests.support.pages import missing


def test_missing_lines_are_noticed():
    assert missing("a ... c\n...\nd", "a b c\nx\nd") is None
    assert missing("a ... c", "a b d") == "a ... c"
    assert missing("d\na", "a\nd") == "a"
