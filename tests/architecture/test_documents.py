"""What is generated is up to date, and what documents name is there."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from scheduler_worker import conf
from scheduler_worker.scheduling.options import DEFAULT_FILTERS
from scheduler_worker.scheduling.plugin import Filter, Weigher

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def test_the_sample_configuration_is_what_the_code_says(tmp_path):
    made = tmp_path / "sample"
    generator = Path(sys.executable).with_name("oslo-config-generator")
    config = ROOT / "etc" / "scheduler_worker" / "config-generator.conf"
    subprocess.run(
        [generator, "--config-file", config, "--output-file", made], check=True, cwd=ROOT
    )
    kept = ROOT / "etc" / "scheduler_worker" / "scheduler_worker.conf.sample"
    assert ours(made.read_text()) == ours(kept.read_text()), "run: make sample"


def ours(sample: str) -> dict[str, str]:
    """The options of ours in a sample, by group; those of libraries follow their versions."""
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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path):
    named = re.findall(r"`((?:scheduler_worker|docs|etc|tools|tests|examples)/[\w./@-]+)`",
                       path.read_text())  # fmt: skip
    for each in named:
        made_by_use = each.startswith("etc/systemd/scheduler-worker@")
        assert (ROOT / each).exists() or made_by_use, f"{path.name} names {each}"


OUR_GROUPS = ("rpc", "state", "cluster_lock", "pending", "monitoring", "tuning")
OPTIONS = {
    (group, opt.name) for group, opts in conf.list_opts() for opt in opts if group in OUR_GROUPS
}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_options_exist(path):
    named = set(re.findall(r"`\[(\w+)\]\s(\w+)", path.read_text()))
    assert {each for each in named if each[0] in OUR_GROUPS} <= OPTIONS


def test_every_option_of_our_groups_is_explained():
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert [name for _, name in sorted(OPTIONS) if not re.search(rf"\b{name}\b", text)] == []


def test_architecture_names_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.name for path in (ROOT / "scheduler_worker").iterdir() if path.is_dir()}
    for room in rooms - {"__pycache__"}:
        assert f"`{room}/`" in text, room


def test_every_registered_unit_is_one():
    filters = {each.name: each.load() for each in entry_points(group="scheduler_worker.filters")}
    weighers = {each.name: each.load() for each in entry_points(group="scheduler_worker.weighers")}
    assert set(DEFAULT_FILTERS) <= filters.keys()
    assert all(issubclass(each, Filter) for each in filters.values())
    assert all(issubclass(each, Weigher) for each in weighers.values())
    assert all(name == each.__name__ for name, each in {**filters, **weighers}.items())


def test_every_module_says_what_it_is_for():
    for path in (ROOT / "scheduler_worker").rglob("*.py"):
        text = path.read_text().strip()
        assert not text or text.startswith('"""'), path
