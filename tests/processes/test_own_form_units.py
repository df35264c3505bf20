"""Units of the worker's own form: the same class in a sandbox and inside the worker."""

import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conformance.ovirt import record, request, table
from msgspec import structs

from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.scheduling.catalogue import UnitKind, entry
from scheduler_worker.scheduling.external.units import Plugins, unit_class
from scheduler_worker.scheduling.plugin import UnitContext
from tests.support.sandboxes import directory, settings, worker_python, write

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/external_units/memory_headroom.py"
HEAD = """\
import sys, time
import numpy as np
from scheduler_worker.scheduling.plugin import Balance, Filter, Weigher

"""
HOSTS = [
    record("small", {}, vcpus=8, memory_mb=2048, local_gb=10),
    record("large", {}, vcpus=8, memory_mb=65536, local_gb=10),
    record("empty", {}, vcpus=0, memory_mb=0, local_gb=0),
]


@pytest.fixture(scope="module")
def python():
    with directory() as folder:
        yield worker_python(folder)


@pytest.fixture
def place(python):
    """The directory, and sandboxes for the files in it."""
    with directory() as folder:
        made = Sandboxes(settings(folder, python=python))
        try:
            yield folder, made
        finally:
            made.close()


def loaded(sandboxes):
    (file,) = sandboxes.refresh()
    assert file.problem is None
    return {each.name: unit_class(each) for each in file.classes}


def made(unit, plugins=None, **parameters):
    """A unit as a policy that sets these parameters gets it."""
    fields = unit.parameters_type(**parameters)
    collaborators: dict[type, object] = {Plugins: plugins} if plugins else {}
    return unit(UnitContext(name=unit.__name__, parameters=fields, collaborators=collaborators))


def sandboxed(place, body, spec=None, name="Unit"):
    """What a unit with this source answers about the three hosts, and why it failed."""
    folder, sandboxes = place
    write(folder, "unit.py", HEAD + body)
    unit = made(loaded(sandboxes)[name], sandboxes)
    ask = unit.weigh if hasattr(unit, "weigh") else unit.passes
    return ask(table(HOSTS), spec or request()).tolist(), unit.note()


def test_the_same_class_answers_alike_in_the_sandbox_and_in_the_worker(place):
    folder, sandboxes = place
    shutil.copy(EXAMPLE, folder)
    (folder / EXAMPLE.name).chmod(0o644)
    units = loaded(sandboxes)
    (declared,) = entry("MemoryHeadroom", units["MemoryHeadroom"]).parameters
    assert (declared.name, declared.type, declared.default) == ("headroom_mb", "integer", 1024)
    inside = SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
    hosts, spec = table(HOSTS), request()
    for headroom_mb in (0, 1024, 64000):
        here = made(inside.MemoryHeadroom, headroom_mb=headroom_mb)
        there = made(units["MemoryHeadroom"], sandboxes, headroom_mb=headroom_mb)
        assert there.passes(hosts, spec).tolist() == here.passes(hosts, spec).tolist()
        assert there.note() is None
    # The host without memory has 0/0 there: no finite number, which counts as 0.
    here, there = made(inside.LeastMemoryUsed), made(units["LeastMemoryUsed"], sandboxes)
    with np.errstate(invalid="ignore"):
        expected = np.nan_to_num(here.weigh(hosts, spec)).tolist()
    assert there.weigh(hosts, spec).tolist() == expected
    assert there.lower_is_better
    assert (there.minval, there.maxval) == (0.0, 100.0)
    assert here.note() is None


def test_rows_have_what_is_declared_and_the_request_is_whole(place):
    body = """
class Unit(Filter):
    host_facts = ("host", "aggregates", "traits", "instances")
    def host_passes(self, host, spec):
        print("nobody reads this")
        assert host.traits == () and host.aggregates == () and not host.instances
        return host.host in spec.only_hosts
"""
    spec = structs.replace(request(), only_hosts=("large",))
    assert sandboxed(place, body, spec) == ([False, True, False], None)


def test_a_request_that_does_not_concern_it_passes_everywhere(place):
    body = """
class Unit(Filter):
    def applies(self, spec): return False
    def host_passes(self, host, spec): return False
"""
    assert sandboxed(place, body) == ([True] * 3, None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return host.free_ram_mb > 0", "free_ram_mb of a host is not among the declared"),
        ("return host.table.x", "table of a host is not among the declared host_facts"),
    ],
)
def test_a_filter_that_fails_passes_all_and_says_why(place, body, why):
    source = f"class Unit(Filter):\n    def host_passes(self, host, spec): {body}\n"
    found, note = sandboxed(place, source)
    assert found == [True] * 3
    assert why in note


@pytest.mark.parametrize(
    ("base", "body", "why"),
    [
        ("Filter", "return [1, 0, 'x']", "Expected `bool`"),
        ("Filter", "return [True]", "it has 1 values for 3 hosts"),
        ("Filter", "return None", "'NoneType' object is not iterable"),
        ("Filter", "return [True] * 4_000_000", "printed more than"),
        ("Weigher", "return [1.0]", "it has 1 values for 3 hosts"),
        ("Weigher", "return ['a', 'b', 'c']", "could not convert string"),
        ("Weigher", "return [[1.0], [1.0], [1.0]]", "Expected `float`"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_useless(place, base, body, why):
    method = "passes" if base == "Filter" else "weigh"
    source = f"class Unit({base}):\n    def {method}(self, hosts, spec): {body}\n"
    found, note = sandboxed(place, source)
    assert found == [base == "Filter"] * 3
    assert why in note


def test_a_score_that_is_no_finite_number_counts_as_0(place):
    body = "class Unit(Weigher):\n    def weigh(self, h, s): return [np.nan, np.inf, 2.5]\n"
    assert sandboxed(place, body) == ([0.0, 0.0, 2.5], None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("class Unit(Balance):\n    def plan(self, c, m, n): pass", "Unit is no Filter or Weigher"),
        (
            "class Unit(Filter):\n    host_facts = ('free_ram',)\n"
            "    def host_passes(self, h, s): return True",
            "Unit.host_facts: there is no free_ram",
        ),
        (
            "class Unit(Filter):\n    collaborators = (int,)\n"
            "    def host_passes(self, h, s): return True",
            "Unit.collaborators",
        ),
        (
            "class Unit(Weigher):\n    def rescaled(self, raw, low, high, spec): return raw\n"
            "    def weigh(self, h, s): return [0]",
            r"Unit.rescaled\(\) works in the worker only",
        ),
    ],
)
def test_what_only_works_in_the_worker_is_refused_when_the_file_is_loaded(place, body, why):
    folder, sandboxes = place
    write(folder, "unit.py", HEAD + body + "\n")
    (file,) = sandboxes.refresh()
    assert file.classes == ()
    assert why.replace("\\", "") in file.problem


def test_both_forms_share_a_file(place):
    folder, sandboxes = place
    body = (
        "class Ours(Filter):\n    def host_passes(self, host, spec): return True\n"
        "class Theirs:\n    def do_filter(self, hosts, vm, properties): print(hosts[:1])\n"
    )
    write(folder, "unit.py", HEAD + body)
    units = loaded(sandboxes)
    hosts, spec = table(HOSTS), request()
    assert made(units["Ours"], sandboxes).passes(hosts, spec).tolist() == [True] * 3
    assert made(units["Theirs"], sandboxes).passes(hosts, spec).tolist() == [True, False, False]
    assert units["Ours"].plugin.kind is UnitKind.FILTER
