"""A folder is at most as large as its budget, and the budget follows its size down."""

import pytest
from sizes import budgets


@pytest.fixture
def root(tmp_path):
    for path, lines in {"p/a.py": 100, "p/q/b.py": 10, "p/r/c.py": 20, "p/q/d.txt": 9}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n" * lines)
    return tmp_path


def test_a_file_counts_for_the_innermost_folder(root):
    assert budgets.folder_lines(root, {"p": 0, "p/q": 0}) == {"p": 120, "p/q": 10}


def test_lines_of_no_budget_are_above_it(root):
    lines = budgets.folder_lines(root, {"p/q": 10})
    (problem,) = budgets.problems(lines, {"p/q": 10})
    assert problem.startswith("p: 120 lines, at most 0")


@pytest.mark.parametrize(
    ("budget", "says"), [(99, "at most 99"), (100, None), (102, None), (103, "--lower")]
)
def test_a_budget_is_the_size_or_little_above(budget, says):
    found = list(budgets.problems({"p": 100}, {"p": budget}))
    assert found == [] if says is None else says in found[0]


def test_a_budget_is_lowered_and_never_raised():
    text = budgets.text({"p": 90, "q": 90, "r": 0}, {"r": 5, "q": 80, "p": 100})
    assert text == '"p" = 90\n"q" = 80\n'


def test_the_table_has_lines_and_budget():
    assert list(budgets.table({"p": 90}, {"p": 100}))[1].split() == ["p", "90", "100"]
