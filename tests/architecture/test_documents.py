"""Generated files are up to date, and everything that documents name exists."""

import importlib
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from oslo_config import cfg

from scheduler_worker import conf
from scheduler_worker.rpc.transport import register_opts
from scheduler_worker.scheduling.options import DEFAULT_FILTERS
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.service.state import records

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scheduler_worker"
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def test_the_sample_configuration_is_up_to_date(tmp_path):
    generated = tmp_path / "sample"
    generator = Path(sys.executable).with_name("oslo-config-generator")
    config = ROOT / "etc" / "scheduler_worker" / "config-generator.conf"
    subprocess.run(
        [generator, "--config-file", config, "--output-file", generated], check=True, cwd=ROOT
    )
    stored = ROOT / "etc" / "scheduler_worker" / "scheduler_worker.conf.sample"
    assert own_options(generated.read_text()) == own_options(stored.read_text()), "run: make sample"


def test_the_sample_configuration_has_our_defaults_of_the_bus():
    found = cfg.ConfigOpts()
    register_opts(found)
    found([])
    sample = (ROOT / "etc" / "scheduler_worker" / "scheduler_worker.conf.sample").read_text()
    default = sample.partition("\n[")[0]
    assert default.startswith("[DEFAULT]\n")
    for name in ("transport_url", "control_exchange"):
        assert f"\n#{name} = {found[name]}\n" in default, "run: make sample"


def own_options(sample: str) -> dict[str, str]:
    """Our options in a sample, by group and name; those of libraries vary with their versions."""
    names = {opt.name for _, opts in conf.list_opts() for opt in opts}
    found, group = {}, ""
    for block in sample.split("\n\n"):
        heading = re.search(r"^\[(.+)\]$", block, re.MULTILINE)
        group = heading.group(1) if heading else group
        option = re.search(r"^#?([a-z_]+) = ", block, re.MULTILINE)
        if option and option.group(1) in names and not group.startswith("oslo"):
            found[f"{group}.{option.group(1)}"] = block
    assert len(found) > 20
    return found


@each_document
def test_named_files_exist(path):
    named = re.findall(r"`((?:scheduler_worker|docs|etc|tools|tests|examples)/[\w./@-]+)`",
                       path.read_text())  # fmt: skip
    for each in named:
        installed = each.startswith("etc/systemd/scheduler-worker@")
        assert (ROOT / each).exists() or installed, f"{path.name} names {each}"


@each_document
def test_nothing_is_said_twice(path):
    """A merge of two versions of a paragraph or row may leave both."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!-- made by .*?<!-- end -->", "", text, flags=re.DOTALL)
    lines = [each.strip() for each in text.splitlines()]
    cells = [each.split("|")[1].strip() for each in lines if each.startswith("| ")]
    generated = "* **Reads**", "* **Parameter "
    long = [each for each in lines if len(each) > 70 and not each.startswith(generated)]
    long += [each for each in cells if len(each) > 20]
    assert {each for each in long if long.count(each) > 1} == set()


PACKAGES = "|".join(each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists())


@each_document
def test_named_modules_exist(path):
    """``waiters.py``, ``service/state/turns.py``, ``rpc/amqp``; or a file beside the document."""
    text = path.read_text()
    named = {
        *re.findall(r"`([\w./-]+\.(?:py|lua))`", text),
        *re.findall(rf"`((?:{PACKAGES})/[\w/]*)`", text),
    }
    places = (PACKAGE, ROOT, ROOT / "tests" / "simulation", path.parent)
    missing = {each for each in named if not any(is_there(place / each) for place in places)}
    assert missing - IN_REDIS == set()


IN_REDIS = {path.name for path in (PACKAGE / "backends" / "redis").rglob("*.lua")}
"""Scripts, which documents name without their folder."""


def is_there(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + ".py").exists()


NOT_PYTHON = {
    "scheduler_worker.filters",
    "scheduler_worker.weighers",
    "scheduler_worker.policy_filters",
    "scheduler_worker.policy_weights",
    "scheduler_worker.policy_balances",
}
"""Groups of entry points."""
ALIASES = {"scheduler_worker.filters.all_filters", "scheduler_worker.weights.all_weighers"}
"""Values of options, after Nova's."""
TOP_LEVEL = "|".join({path.stem for path in PACKAGE.glob("*.py")} | {"conf", "monitoring"})


@each_document
def test_named_python_objects_exist(path):
    """``scheduler_worker.scheduling.plugin``, ``ports.Observer``."""
    text = path.read_text()
    full = re.findall(r"`(scheduler_worker(?:\.\w+)+)`", text)
    short = re.findall(rf"`((?:{TOP_LEVEL})\.(?!py\b|md\b)\w+)`", text)
    named = {*full, *(f"scheduler_worker.{each}" for each in short)} - NOT_PYTHON - ALIASES
    assert {each for each in named if not is_importable(each)} == set()


def is_importable(name: str) -> bool:
    """Whether it is a module, or an attribute of one."""
    if is_there(ROOT.joinpath(*name.split("."))):
        return True
    module, _, attribute = name.rpartition(".")
    is_module = is_there(ROOT.joinpath(*module.split(".")))
    return is_module and hasattr(importlib.import_module(module), attribute)


ENTRY = re.compile(r"^\*\*(.+?)\*\*: [A-Z`]", re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_says_what_comes_next(path):
    assert re.search(r"^(## Next$|\*\*Next\*\*)", path.read_text(), re.MULTILINE)


def test_the_terms_of_the_glossary_stand_in_order():
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = ENTRY.findall(text)
    assert len(terms) == len(re.findall(r"^\*\*", text, re.MULTILINE))
    assert terms == sorted(set(terms), key=str.casefold)
    assert f": {len(terms)} terms" in text


def test_every_kind_of_record_is_documented():
    text = (ROOT / "docs" / "state.md").read_text()
    prefixes = [
        each for each in vars(records).values() if isinstance(each, str) and each[1:] == ":"
    ]
    assert len(prefixes) > 10
    assert [
        each for each in prefixes if f"`{each}<" not in text and f"`{each}policy" not in text
    ] == []


OUR_GROUPS = (
    "rpc", "state", "cluster_lock", "pending", "policy_store", "monitoring", "tuning",
    "balancing",
)  # fmt: skip


def test_every_option_of_our_groups_is_explained():
    text = (ROOT / "docs" / "configuration.md").read_text()
    names = {opt.name for group, opts in conf.list_opts() for opt in opts if group in OUR_GROUPS}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


def test_architecture_names_every_package():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [path.parent for path in PACKAGE.glob("*/__init__.py")]
    packages += [path.parent for path in PACKAGE.glob("service/*/__init__.py")]
    assert len(packages) > 10
    for package in packages:
        assert f"`{package.name}/`" in text, package


def test_every_registered_unit_is_one():
    filters = {each.name: each.load() for each in entry_points(group="scheduler_worker.filters")}
    weighers = {each.name: each.load() for each in entry_points(group="scheduler_worker.weighers")}
    assert set(DEFAULT_FILTERS) <= filters.keys()
    assert all(issubclass(each, Filter) for each in filters.values())
    assert all(issubclass(each, Weigher) for each in weighers.values())
    assert all(name == each.__name__ for name, each in {**filters, **weighers}.items())


def test_every_module_says_what_it_is_for():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text().strip()
        assert not text or text.startswith('"""'), path
