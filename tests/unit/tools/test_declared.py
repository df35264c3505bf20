"""Facts that are declared twice are found; exceptions may only shrink."""

import pytest
from declared.alike import declared, problems
from declared.edges import edges_that_name_resources
from declared.options import repeated_defaults

FOUR = "a: int\n    b: str\n    c: float\n    d: bool"


def struct(name: str, fields: str = FOUR, base: str = "msgspec.Struct") -> str:
    return f"class {name}({base}):\n    {fields}\n"


@pytest.fixture
def found(tmp_path):
    def of(*sources: str):
        for number, source in enumerate(sources):
            (tmp_path / f"m{number}.py").write_text(source)
        return declared(tmp_path, ".")

    return of


@pytest.mark.parametrize("base", ["Struct", "NamedTuple", "msgspec.Struct, frozen=True"])
def test_structs_with_the_same_fields_are_named(found, base):
    (problem,) = problems(found(struct("A"), struct("B", base=base)), [], {})
    assert problem == "m0.py:A and m1.py:B share a, b, c, d; declare these once"


def test_a_dataclass_is_a_struct_and_a_plain_class_is_none(found):
    data = f"@dataclass(frozen=True)\nclass B:\n    {FOUR}\n"
    plain = f"class C:\n    {FOUR}\n"
    (problem,) = problems(found(struct("A"), data, plain), [], {})
    assert "m0.py:A and m1.py:B share" in problem


def test_an_annotation_counts_and_three_of_four_fields_are_too_many(found):
    other = struct("B", FOUR.replace("a: int", "a: str"))
    assert len(problems(found(struct("A"), other), [], {})) == 1
    another = struct("B", FOUR.replace("a: int", "a: str").replace("b: str", "b: int"))
    assert problems(found(struct("A"), another), [], {}) == []


def test_a_struct_that_another_contains_is_named(found):
    large = struct("B", FOUR + "".join(f"\n    e{number}: int" for number in range(9)))
    assert len(problems(found(struct("A"), large), [], {})) == 1


def test_inherited_fields_and_small_structs_do_not_count(found):
    derived = struct("B", "e: int\n    f: int\n    g: int\n    h: int", base="A")
    derived += struct("C", "pass", base="A")
    small = struct("D", "a: int\n    b: str\n    c: float")
    assert problems(found(struct("A") + derived + small), [], {}) == []


def test_an_exception_of_a_pair_must_be_needed(found):
    pair = [["m0.py:A", "m1.py:B"]]
    assert problems(found(struct("A"), struct("B")), pair, {}) == []
    (problem,) = problems(found(struct("A"), struct("B", "pass")), pair, {})
    assert problem == "m0.py:A and m1.py:B are no longer alike; delete their exception"


def test_public_classes_of_one_name_are_named_and_private_ones_may_be(found):
    sources = ["class A: ...\nclass _P: ...\n"] * 2
    (problem,) = problems(found(*sources), [], {})
    assert problem == "2 classes have the name A: m0.py:A, m1.py:A; rename one"


@pytest.mark.parametrize("count", [1, 3])
def test_an_exception_of_a_name_is_as_high_as_needed(found, count):
    sources = ["class A: ...\n"] * 2
    assert problems(found(*sources), [], {"A": 2}) == []
    (problem,) = problems(found(*sources), [], {"A": count})
    assert ("rename one" in problem) == (count == 1)


def test_an_exception_of_a_name_that_is_unique_is_not_needed(found):
    (problem,) = problems(found("class A: ...\n"), [], {"A": 2})
    assert problem == "the exception of the name A is 2, needed 1; lower it"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from scheduler_worker.operations import hosts", "scheduler_worker.operations.hosts"),
        ("from scheduler_worker.operations.hosts import Host", "scheduler_worker.operations.hosts"),
        ("client.list_hosts()", "list_hosts"),
        ("call('list_hosts')", "list_hosts"),
        ("from scheduler_worker.operations.operation import operation; call('hosts')", None),
    ],
)
def test_an_edge_that_names_a_resource_is_named(tmp_path, line, name):
    package = tmp_path / "scheduler_worker"
    for folder in ("api", "cli", "operations", "rpc"):
        (package / folder).mkdir(parents=True)
    for edge in ("api/application", "api/bind", "api/openapi", "api/problems", "cli/bind"):
        (package / f"{edge}.py").touch()
    (package / "operations/hosts.py").write_text("@operation('GET')\ndef list_hosts(): ...\n")
    (package / "operations/operation.py").touch()
    (package / "client.py").write_text(f"{line}\n")
    found = edges_that_name_resources(tmp_path)
    place = f"scheduler_worker/client.py:1 names {name}; what all operations share says it too"
    assert found == ([] if name is None else [place])


OPTION = """
class Settings(Struct):
    prefix: Annotated[str, Opt(regex="x")] = "books"
    enabled: Annotated[bool, Opt()] = False
    timeout_s: Annotated[float, Opt()] = 60.0


class Others(Struct):
    timeout_s: Annotated[float, Opt()] = 2.0
"""


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('def open(prefix="books"): ...', True),
        ('def open(*, prefix: str = "books"): ...', True),
        ('class Shelf:\n    prefix: str = "books"', True),
        ('def open(prefix="papers"): ...', False),
        ("def open(prefix=PREFIX): ...", False),
        ("def open(prefix): ...", False),
        ("def open(enabled=False): ...", False),
        ("def open(timeout_s=60.0): ...", False),
    ],
)
def test_a_default_that_is_written_twice_is_found(tmp_path, text, is_found):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/settings.py").write_text(OPTION)
    (tmp_path / "package/other.py").write_text(text)
    complaints = list(repeated_defaults(tmp_path, "package"))
    assert [each.partition(":")[0] for each in complaints] == ["package/other.py"] * is_found
