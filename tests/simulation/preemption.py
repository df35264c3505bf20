"""Preempts threads before any statement of the worker's code, not only at locks.

For the time of a run, the functions of some modules get other code: their source with a call before
every statement. They stay the same objects, so references to them stay valid.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

_CALL = "__give_way__"
_PREEMPTED = (
    "scheduler_worker.service.",
    "scheduler_worker.rpc.slots",
    "scheduler_worker.rpc.serving.deliveries",
    "scheduler_worker.rpc.serving.handling",
    "scheduler_worker.rpc.serving.server",
    "scheduler_worker.waiters",
    "scheduler_worker.model.host_table",
    "scheduler_worker.scheduling.evaluator",
    "scheduler_worker.scheduling.pipeline",
    "scheduler_worker.scheduling.evaluation",
    "scheduler_worker.scheduling.filter_results",
)


@contextmanager
def preempting(give_way: Callable[[], object], where: str = "") -> Iterator[None]:
    """Inside, ``give_way`` is called before each statement; it may switch to another thread.

    ``where`` names the one module of the worker in which that happens.
    """
    marked = [each for each in marked_functions() if where in each[0].__module__]
    assert marked, f"there is no module {where}"
    for module in {sys.modules[function.__module__] for function, _, _ in marked}:
        setattr(module, _CALL, give_way)
    for function, _, code in marked:
        function.__code__ = code
    try:
        yield
    finally:
        for function, code, _ in marked:
            function.__code__ = code


@cache
def marked_functions() -> list[tuple[FunctionType, CodeType, CodeType]]:
    """Each function with its own code and the other one; called before any is replaced."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_PREEMPTED)]
    return [each for module in modules for each in _marked_of(module)]


def _marked_of(module: ModuleType) -> Iterator[tuple[FunctionType, CodeType, CodeType]]:
    path = Path(str(module.__file__))
    tree = ast.fix_missing_locations(_Marks().visit(ast.parse(path.read_text("utf-8"))))
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _inside(compile(tree, str(path), "exec", dont_inherit=True))
    }
    for function in _functions(module):
        plain = function.__code__
        marked = codes.get((plain.co_qualname, plain.co_firstlineno))
        if marked is not None and marked.co_freevars == plain.co_freevars:
            yield function, plain, marked


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """The module's functions and its classes' methods, without their decorators."""
    owners = [module, *(each for each in vars(module).values() if inspect.isclass(each))]
    found: dict[int, FunctionType] = {}
    for owner in owners:
        if owner.__name__ == module.__name__ or owner.__module__ == module.__name__:  # type: ignore[attr-defined]
            for each in vars(owner).values():
                each = getattr(each, "fget", None) or getattr(each, "func", None) or each
                function = inspect.unwrap(getattr(each, "__func__", each))
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    found[id(function)] = function
    yield from found.values()


class _Marks(ast.NodeTransformer):
    """Puts a call before each statement of a function."""

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = self._with_calls(node.body)
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def _with_calls(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            if not isinstance(statement, _SILENT) and not _is_docstring(statement):
                call = ast.Call(ast.Name(_CALL, ast.Load()), [], [])
                found.append(ast.copy_location(ast.Expr(call), statement))
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._mark_blocks(statement)
            found.append(statement)
        return found

    def _mark_blocks(self, statement: ast.stmt) -> None:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(statement, name, None)
            if block:
                setattr(statement, name, self._with_calls(block))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            part.body = self._with_calls(part.body)


_SILENT = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
