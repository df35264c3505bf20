"""The tables of operations, reports and metrics in the pages about them."""

import inspect
import re
import typing
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from reference.metrics import metrics
from reference.reports import fields_of_reports
from scheduler_worker.cli.bind import commands
from scheduler_worker.cli.book import OF_OPERATIONS
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.forms import choices, description
from scheduler_worker.operations.operation import Operation, Page, PageQuery
from scheduler_worker.options import texts

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BEGIN = "<!-- made by `make reference`: do not edit -->"
_END = "<!-- end -->"
AnyOperation = Operation[Any, Any]


def with_tables() -> dict[Path, str]:
    """The pages with their blocks made anew."""
    blocks = {"rpc.md": [_rpc(), fields_of_reports()], "rest-v1.md": [_rest(), _types()]}
    blocks["scheduler-workerctl.md"] = [_commands(commands())]
    blocks["scheduler-worker-manage.md"] = [_commands(OF_OPERATIONS)]
    blocks["monitoring.md"] = [metrics()]
    return {DOCS / name: _filled((DOCS / name).read_text(), some) for name, some in blocks.items()}


def _filled(text: str, blocks: list[str]) -> str:
    pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    left = iter(blocks)
    return pattern.sub(lambda _: f"{_BEGIN}\n\n{next(left)}\n\n{_END}", text)


def _rpc() -> str:
    lines = ["| method | arguments | answer | |", "|---|---|---|---|"]
    for operation in OPERATIONS:
        if operation.home != "api":
            given = ", ".join(f"`{name}`" for name in _parameters(operation))
            to = "call to `topic.NAME`: " if operation.home == "worker" else ""
            lines.append(
                f"| `{operation.name}` | {given} | {_answer(operation)} | {to}{operation.summary} |"
            )
    return "\n".join(lines)


def _rest() -> str:
    lines = ["| path | | right |", "|---|---|---|"]
    for operation in OPERATIONS:
        if operation.path is not None:
            path = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), f"/v1{operation.path}")
            what = f"{operation.method}: {operation.summary}"
            if operation.answer is not None:
                what += f" Answers {_answer(operation)}."
            given = [name for name in _parameters(operation) if f"{{{name}}}" not in operation.path]
            if given:
                what += f" Takes {', '.join(f'`{name}`' for name in given)}."
            lines.append(f"| `{path}` | {what} | `{operation.right}` |")
    return "\n".join(lines)


def _parameters(operation: AnyOperation) -> list[str]:
    return [field.name if field.required else f"{field.name}?" for field in operation.fields]


def _answer(operation: AnyOperation) -> str:
    if operation.is_list:
        [item] = typing.get_args(operation.answer)
        return f"a page of `{item.__name__}`"
    return f"`{_name(operation.answer)}`" if operation.answer is not None else "null"


# Types


def _types() -> str:
    kinds: dict[str, type[msgspec.Struct]] = {}
    for operation in OPERATIONS:
        for kind in (operation.parameters, operation.answer):
            _collect(kind, kinds)
    return "\n\n".join("\n".join(_type(kinds[name])) for name in sorted(kinds))


def _collect(kind: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Page:
        if kind.__name__ in found or not structs.fields(kind):
            return
        found[kind.__name__] = kind
        for field in structs.fields(kind):
            _collect(field.type, found)
    for each in typing.get_args(kind):
        _collect(each, found)


def _type(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield f"**{kind.__name__}**: {' '.join(inspect.cleandoc(kind.__doc__ or '').split())}"
    yield ""
    yield "| field | type | |"
    yield "|---|---|---|"
    texts = {name: text for base in reversed(kind.__mro__) for name, text in _texts(base).items()}
    for field in structs.fields(kind):
        text = description(field) or texts.get(field.name, "")
        shown = _name(field.type).replace("|", "or")
        yield f"| `{field.name}` | {shown} | {text.replace('|', 'or')} |"


def _texts(kind: type) -> dict[str, str]:
    """The strings behind the fields of a class of ours, by field."""
    return texts(kind) if kind.__module__.startswith("scheduler_worker") else {}


def _name(kind: Any) -> str:
    """A type, as people write it."""
    if typing.get_origin(kind) is typing.Annotated:
        return _name(typing.get_args(kind)[0])
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    text = re.sub(r"Annotated\[(.*?), msgspec\.Meta\(.*?\)\]", r"\1", text)
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)
    return (
        re.sub(r"Literal\[(.*?)\]", r"\1", text).replace("NoneType", "null").replace("None", "null")
    )


# Commands


def _commands(names: Collection[str]) -> str:
    found = sorted(
        (operation.command, operation)
        for operation in OPERATIONS
        if operation.command is not None and operation.command in names
    )
    return "\n\n".join("\n".join(_command(name, each)) for name, each in found)


def _command(name: str, operation: AnyOperation) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    words = [field.name.upper() for field in operation.fields if field.required]
    more = "..." if operation.done else ""
    yield f"`{' '.join([name, *words])}{more}`: {operation.text}"
    rows = [
        (field.name.upper() if field.required else f"`--{field.name.replace('_', '-')}`", field)
        for field in operation.fields
        if field.name not in PageQuery.__struct_fields__
    ]
    if rows:
        yield ""
        yield "| argument | |"
        yield "|---|---|"
    for shown, each in rows:
        of = f" One of {', '.join(f'`{text}`' for text in choices(each.type))}."
        yield f"| {shown} | {description(each)}{of if choices(each.type) else ''} |"
    if operation.columns:
        yield ""
        yield f"Columns: {', '.join(operation.columns)}."
    if operation.long:
        yield f"With `--long` also {', '.join(operation.long)}."
