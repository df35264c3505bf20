"""What the tests read of pages with commands."""

from tests.support.pages import missing, steps


def test_missing_lines_are_noticed():
    assert missing("a ... c\n...\nd", "a b c\nx\nd") is None
    assert missing("a ... c", "a b d") == "a ... c"
    assert missing("d\na", "a\nd") == "a"


def test_commands_have_continuations_here_documents_and_what_they_print():
    page = """
```console
$ cat > a <<'END'
$ not a command
END
$ b \\
    c
x
```

```sh
$ no
```
"""
    assert steps(page) == [
        ("cat > a <<'END'\n$ not a command\nEND", ""),
        ("b \\\n    c", "x\n"),
    ]
