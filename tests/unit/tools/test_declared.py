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


ALL = "a, b, c, d"


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (struct("B", base="Struct"), ALL),
        (struct("B", base="NamedTuple"), ALL),
        (struct("B", base="msgspec.Struct, frozen=True"), ALL),
        (f"@dataclass(frozen=True)\nclass B:\n    {FOUR}\n", ALL),
        (f"class B:\n    {FOUR}\n", None),
        (struct("B", FOUR.replace("a: int", "a: str")), "b, c, d"),  # an annotation counts
        (struct("B", FOUR.replace("a: int", "a: str").replace("b: str", "b: int")), None),
        (struct("B", FOUR + "".join(f"\n    e{number}: int" for number in range(9))), ALL),
        (struct("B", "a: int\n    b: str\n    c: float"), None),
    ],
)
def test_structs_that_share_fields_are_named(found, other, shared):
    message = f"m0.py:A and m1.py:B share {shared}; declare these once"
    assert problems(found(struct("A"), other), [], {}) == ([message] if shared else [])


def test_inherited_fields_do_not_count(found):
    derived = struct("B", "e: int\n    f: int\n    g: int\n    h: int", base="A")
    derived += struct("C", "pass", base="A")
    assert problems(found(struct("A") + derived), [], {}) == []


def test_an_exception_of_a_pair_must_be_needed(found):
    pair = [["m0.py:A", "m1.py:B"]]
    assert problems(found(struct("A"), struct("B")), pair, {}) == []
    (problem,) = problems(found(struct("A"), struct("B", "pass")), pair, {})
    assert problem == "m0.py:A and m1.py:B are no longer alike; delete their exception"


def test_public_classes_of_one_name_are_named_and_private_ones_may_be(found):
    sources = ["class A: ...\nclass _P: ...\n"] * 2
    (problem,) = problems(found(*sources), [], {})
    assert problem == "2 classes have the name A: m0.py:A, m1.py:A; rename one"


@pytest.mark.parametrize(
    ("classes", "permitted", "complaint"),
    [
        (2, 2, None),
        (2, 1, "rename one"),
        (2, 3, "the exception of the name A is 3, needed 2; lower it"),
        (1, 2, "the exception of the name A is 2, needed 1; lower it"),
    ],
)
def test_an_exception_of_a_name_is_as_high_as_needed(found, classes, permitted, complaint):
    complaints = problems(found(*["class A: ...\n"] * classes), [], {"A": permitted})
    assert complaints == [] if complaint is None else complaint in complaints[0]


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
