"""Finds structs that declare the same fields, and public classes that have the same name.

A struct is a msgspec struct, a NamedTuple or a dataclass. Its fields are those that its own body
declares, each a name with the text of its annotation: what it inherits counts for the base alone.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

MIN_FIELDS = 4
SAME = 0.7
"""The share of the smaller struct's fields from which on two structs say the same."""
_STRUCTS = {"Struct", "NamedTuple"}


class Declared(NamedTuple):
    """A class at the top of a module."""

    name: str
    place: str
    """``path:name``."""
    is_struct: bool
    fields: frozenset[tuple[str, str]]


def declared(root: Path, folder: str) -> list[Declared]:
    """The classes of all modules below the folder, in the order of their places."""
    nodes = [
        (f"{path.relative_to(root)}:{node.name}", node)
        for path in sorted((root / folder).rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    structs = _struct_names([node for _, node in nodes])
    return [
        Declared(node.name, place, node.name in structs, frozenset(_fields(node)))
        for place, node in nodes
    ]


def _struct_names(nodes: Sequence[ast.ClassDef]) -> set[str]:
    """The names of structs and of what inherits from them, by name."""
    found = {node.name for node in nodes if _is_dataclass(node)}
    while True:
        more = {node.name for node in nodes if _bases(node) & (found | _STRUCTS)} - found
        if not more:
            return found
        found |= more


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            annotation = ast.unparse(each.annotation)
            if not annotation.startswith("ClassVar"):
                yield each.target.id, annotation


def problems(
    found: Sequence[Declared], alike: Sequence[Sequence[str]], names: Mapping[str, int]
) -> list[str]:
    """A sentence for each finding without an exception, and for each exception without need.

    ``alike`` are pairs of places that are permitted for now, ``names`` how many classes may have
    a name.
    """
    return [*_alike_problems(found, alike), *_name_problems(found, names)]


def _alike_problems(
    found: Sequence[Declared], exceptions: Sequence[Sequence[str]]
) -> Iterator[str]:
    structs = [each for each in found if each.is_struct and len(each.fields) >= MIN_FIELDS]
    permitted = {(first, second) for first, second in exceptions}
    needed = set()
    for one, other in combinations(structs, 2):
        same = one.fields & other.fields
        if len(same) < SAME * min(len(one.fields), len(other.fields)):
            continue
        pair = (one.place, other.place)
        needed.add(pair)
        if pair not in permitted:
            shared = ", ".join(sorted(name for name, _ in same))
            yield f"{one.place} and {other.place} share {shared}; declare these once"
    for first, second in sorted(permitted - needed):
        yield f"{first} and {second} are no longer alike; delete their exception"


def _name_problems(found: Sequence[Declared], exceptions: Mapping[str, int]) -> Iterator[str]:
    counts = Counter(each.name for each in found if not each.name.startswith("_"))
    for name in sorted({name for name, count in counts.items() if count > 1} | set(exceptions)):
        count, permitted = counts[name], exceptions.get(name, 1)
        if count > permitted:
            places = ", ".join(each.place for each in found if each.name == name)
            yield f"{count} classes have the name {name}: {places}; rename one"
        elif permitted == 1 or count < permitted:
            yield f"the exception of the name {name} is {permitted}, needed {count}; lower it"
