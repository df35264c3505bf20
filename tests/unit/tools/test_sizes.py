"""Lines of code are counted without blanks, comments and docstrings; what is too large is named."""

import pytest
from sizes import measure
from sizes.measure import Size, problems, sizes

SOURCE = '''"""A module,
with two lines."""

import os  # counts

# a comment


class Kind:
    """One."""

    size = 1
    """Of what."""

    @property
    def text(self):
        """Two
        lines."""

        def inner():
            return """a
            string"""

        return inner()
'''


def by_name(text: str) -> dict[str, int]:
    return {size.place.partition(" ")[2]: size.lines for size in sizes(text, "f.py")}


def test_lines_of_code_of_a_file_and_its_functions():
    # The file: import, class, size, decorator, and the five lines of the method.
    assert by_name(SOURCE) == {"": 9, "text": 5, "inner": 3}


@pytest.mark.parametrize("comment", ["# more", '"""More."""', "", "\n\n"])
def test_explanations_cost_nothing(comment):
    assert by_name(f"{SOURCE}\n{comment}\n") == by_name(SOURCE)


def function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def test_a_function_at_its_bound_passes_and_a_longer_one_is_named():
    assert problems(list(sizes(function(measure.MAX_FUNCTION), "f.py")), {}) == []
    (problem,) = problems(list(sizes(function(measure.MAX_FUNCTION + 1), "f.py")), {})
    assert problem.startswith("f.py:1 f: 61 lines of code, at most 60")


def test_a_file_above_its_bound_is_named():
    (problem,) = problems(list(sizes("x = 1\n" * (measure.MAX_FILE + 1), "f.py")), {})
    assert problem.startswith("f.py: 451 lines of code, at most 450")


def test_an_exception_permits_a_file_and_must_be_needed():
    large = Size(measure.MAX_FILE + 1, "large.py", "large.py", is_function=False)
    small = Size(1, "small.py", "small.py", is_function=False)
    assert problems([large, small], {"large.py": "a reason"}) == []
    (problem,) = problems([small], {"small.py": "a reason"})
    assert "small.py is within the bounds; delete its exception" in problem


def test_scripts_without_a_suffix_are_measured(tmp_path):
    (tmp_path / "script").write_text("#!/usr/bin/env python3\nx = 1\n")
    (tmp_path / "shell").write_text("#!/bin/sh\ntrue\n")
    (tmp_path / "module.py").write_text("x = 1\ny = 2\n")
    found = {size.path: size.lines for size in measure.measured(tmp_path, ["."])}
    assert found == {"script": 1, "module.py": 2}
