"""Lines of code are counted without explanations; what is above its bound or budget is named."""

import pytest
from sizes import budgets, measure
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


def test_lines_of_code_of_a_file_and_its_functions():
    lines = {size.place.partition(" ")[2]: size.lines for size in sizes(SOURCE, "f.py")}
    # The file: import, class, size, decorator, and the five lines of the method.
    assert lines == {"": 9, "text": 5, "inner": 3}


@pytest.mark.parametrize(
    ("text", "begin", "bound"),
    [
        ("def f():\n" + "    x = 1\n" * measure.MAX_FUNCTION, "f.py:1 f: 61", 60),
        ("x = 1\n" * (measure.MAX_FILE + 1), "f.py: 451", 450),
    ],
)
def test_what_is_above_its_bound_is_named(text, begin, bound):
    (problem,) = problems(list(sizes(text, "f.py")), {})
    assert problem.startswith(f"{begin} lines of code, at most {bound}")
    line = text.splitlines(keepends=True)[-1]
    assert problems(list(sizes(text.removesuffix(line), "f.py")), {}) == []


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
    lines = {size.path: size.lines for size in measure.measured(tmp_path, ["."])}
    assert lines == {"script": 1, "module.py": 2}


def test_a_folder_counts_with_all_below_it(tmp_path):
    for path, lines in {"p/a.py": 100, "p/q/b.py": 10, "p/q/d.txt": 9}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n" * lines)
    assert budgets.folder_lines(tmp_path, {"p": 0}) == {"p": 110}


@pytest.mark.parametrize(("lines", "says"), [(1122, None), (1123, "p: 1123 lines, at most 1122")])
def test_a_folder_may_have_its_base_its_features_and_some_slack(lines, says):
    figures = {"base": {"p": 1000, "q": 1}, "a feature": {"p": 100}}
    complaints = list(budgets.problems({"p": lines}, figures))
    assert complaints == [] if says is None else complaints[0].startswith(says)
