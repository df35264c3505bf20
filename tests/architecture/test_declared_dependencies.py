"""Everything that is imported is declared in setup.cfg, and capped where internals are used."""

import ast
import sys
from collections.abc import Iterator, Set
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from amqp import Connection
from amqp.transport import TCPTransport
from packaging.utils import canonicalize_name

from tests.support.packages import requirements

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {
    "scheduler_worker/cli/charts.py": {"matplotlib"},
    "scheduler_worker/api/keystone.py": {"keystoneauth1", "keystonemiddleware"},
    "scheduler_worker/backends/nova/compute_api.py": {"keystoneauth1"},
    "scheduler_worker/backends/nova/options.py": {"keystoneauth1"},
    "scheduler_worker/backends/placement/session.py": {"keystoneauth1"},
    "scheduler_worker/compose/engines.py": {"opentelemetry-sdk"},
    "scheduler_worker/monitoring/tracing.py": {"opentelemetry-sdk"},
}
"""Imports of extras, by the module that has them, or that is itself imported where needed."""
ELSEWHERE = {
    "nova": "compared with where a Nova is installed, in an interpreter of its own",
    "placement": "likewise: a real Placement is installed where tests need one",
    "ovirtsdk4": "of the extra `sdk`, which `make check` does without",
    "pycurl": "likewise; the SDK raises its errors",
}
OWN = {"scheduler_worker", "tests", "setup"}


@cache
def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, without those of Python and its own folder."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    beside = {each.stem for each in path.parent.iterdir()}
    return found - sys.stdlib_module_names - OWN - beside


def programs(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            is_script = path.is_file() and not path.suffix and is_python_script(path)
            if path.suffix == ".py" or is_script:
                yield path


def is_python_script(path: Path) -> bool:
    with path.open("rb") as opened:
        first = opened.readline()
    return first.startswith(b"#!") and b"python" in first


DISTRIBUTIONS = packages_distributions()


def undeclared(path: Path, permitted: Set[str]) -> list[str]:
    local = {each.name for each in (ROOT / "tools").iterdir()}
    found = []
    for package in sorted(imported(path) - local - ELSEWHERE.keys()):
        names = {canonicalize_name(each) for each in DISTRIBUTIONS.get(package, [])}
        if not names & permitted:
            found.append(package)
    return found


def test_imports_of_the_worker_are_declared():
    required = requirements("server").keys()
    for path in programs("scheduler_worker"):
        optional = OPTIONAL.get(str(path.relative_to(ROOT)), set())
        assert undeclared(path, required | optional) == [], path


def test_imports_of_tests_tools_and_examples_are_declared():
    required = requirements("chart", "test").keys()
    for path in programs("tests", "tools", "examples"):
        assert undeclared(path, required) == [], path


@pytest.mark.parametrize("name", sorted(requirements("server")))
def test_a_declared_dependency_is_imported(name):
    packages = {
        package
        for package, names in DISTRIBUTIONS.items()
        if name in {canonicalize_name(each) for each in names}
    }
    used = set().union(*(imported(path) for path in programs("scheduler_worker")))
    assert packages & used, f"nothing imports {name}"


def test_an_undeclared_import_is_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import json\nimport redis.crc\nfrom oslo_utils import timeutils\n")
    assert undeclared(program, {"redis"}) == ["oslo_utils"]


@pytest.mark.parametrize("name", ["amqp", "redis", "oslo-messaging"])
def test_a_library_whose_internals_are_used_is_capped_at_the_tested_major(name):
    specifier, installed = requirements("server")[name].specifier, version(name)
    following = f"{int(installed.partition('.')[0]) + 1}.0"
    assert specifier.contains(installed), f"{name} {installed} is not what setup.cfg permits"
    assert not specifier.contains(following), f"setup.cfg permits {name} {following}"


def test_py_amqp_has_the_hooks_that_the_connection_overrides():
    """One that was renamed would not be called any more, without an error."""
    hooks = ("_setup_transport", "_shutdown_transport", "_read", "write")
    assert [each for each in hooks if not hasattr(TCPTransport, each)] == []
    assert hasattr(Connection, "Transport")
