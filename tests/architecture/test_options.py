"""An option is declared once: as an annotated field of a struct that the configuration lists."""

import ast
from pathlib import Path

from scheduler_worker import conf

PACKAGE = Path(conf.__file__).resolve().parents[1]
PROGRAMS = {"cli/api.py", "cli/worker.py"}
"""They make the options of their command lines."""


def trees():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def test_only_one_module_makes_options_of_files():
    makers = {
        place
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith("Opt")
        and ast.unparse(node.func).startswith("cfg.")
    }  # fmt: skip
    assert makers == {"conf/declared.py"} | PROGRAMS


def test_every_struct_that_declares_options_is_read():
    declaring = {
        node.name
        for _, tree in trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and "Opt(" in ast.unparse(field.annotation)
    }
    assert declaring - {each.struct.__name__ for each in conf.TABLE.declared} == set()
