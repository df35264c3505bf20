"""The commands of policies, units and the audit, in both programs: over the bus, and without."""

import io
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from scheduler_worker.cli import edit_policy
from scheduler_worker.cli.ctl import Ctl
from scheduler_worker.cli.manage import Manage
from scheduler_worker.operations.policies import put_policy
from scheduler_worker.scheduling.catalogue import Catalogue, UnitKind
from tests.support.commands import plain
from tests.support.edges import UNIT, Edges
from tests.support.rest import Rest

PACKING = {
    "id": "p1",
    "name": "packing",
    "filters": [{"unit": "RamFilter"}],
    "weights": [{"unit": "RAMWeigher", "factor": -1.0}],
}
LOADED = {
    "id": "p2",
    "name": "loaded",
    "filters": [{"unit": "CPU"}],
    "balance": {"unit": "OptimalForEvenDistribution"},
    "parameters": {"HighUtilization": "80"},
}
CHANGED = PACKING | {"filters": []}


@pytest.fixture
def rest():
    rest = Rest("east", "west")
    rest.office.use(Catalogue([*rest.world.pipelines.catalogue, UNIT]))
    rest.administration.register_units()
    return rest


@pytest.fixture(params=[Ctl, Manage], ids=lambda program: program.NAME)
def run(request, rest, capsys):
    """Runs a command of the program; returns its status, output and error."""
    edges = Edges(rest)
    return lambda *words: edges.run(capsys, *words, of=request.param)


@pytest.fixture
def policy_file(tmp_path):
    path = tmp_path / "policies.yaml"

    def write(*policies):
        path.write_text(yaml.safe_dump({"policies": list(policies or [PACKING])}))
        return str(path)

    return write


@pytest.fixture
def stored(run, policy_file):
    """With two policies."""
    assert run("policy", "import", policy_file(PACKING, LOADED), "--yes")[0] == 0
    return run


def listed(run):
    """The policies that are not built in, by name."""
    rows = plain(run, "policy", "list")
    return {each["Name"]: each for each in rows if not each["Locked"]}


def of_clusters(run):
    """The name and version of what is in force, by cluster."""
    shown = {name: plain(run, "policy", "show", name) for name in ("east", "west")}
    return {name: f"{each['name']}@{each['version']}" for name, each in shown.items()}


# Policies of a file


def test_a_policy_goes_from_a_file_to_clusters_and_to_the_end(run, policy_file, tmp_path):
    path = policy_file()
    status, out, _ = run("policy", "import", path, "--yes")
    assert (status, out.splitlines()[0], out.splitlines()[-1]) == (
        0, "--- not stored", "created: packing"
    )  # fmt: skip
    assert run("policy", "attach", "packing", "east", "west")[:2] == (
        0, "east: packing@1\nwest: packing@1\n"
    )  # fmt: skip
    row = listed(run)["packing"]
    assert (row["Id"], row["Version"], row["Clusters"]) == ("p1", 1, ["east", "west"])
    shown = plain(run, "policy", "show", "packing")
    assert shown["weights"] == [{"unit": "RAMWeigher", "factor": -1.0}]
    assert (shown["clusters"], shown["is_locked"]) == (["east", "west"], False)
    exported = tmp_path / "exported.yaml"
    exported.write_text(run("policy", "export")[1])
    [document] = yaml.safe_load(exported.read_text())["policies"]
    assert {**document, **PACKING} == document
    assert run("policy", "diff", "packing", "--file", str(exported)) == (0, "", "")
    status, _, err = run("policy", "remove", "packing")
    assert (status, "east, west" in err) == (1, True)
    assert run("policy", "detach", "east", "west")[:2] == (0, "east: nova\nwest: nova\n")
    assert run("policy", "remove", "PACKING")[:2] == (0, "removed: packing\n")
    assert listed(run) == {}
    actions = [each["Action"] for each in plain(run, "policy", "history", "p1")]
    assert actions == ["create", "attach", "attach", "detach", "detach", "remove"]
    of_east = [each["Policy"] for each in plain(run, "cluster", "history", "east")]
    assert of_east == ["p1", "nova"]


def test_an_import_shows_a_diff_and_asks(stored, policy_file):
    status, out, err = stored("policy", "import", policy_file(CHANGED))
    assert (status, "pass --yes" in err) == (1, True)
    assert out.startswith("--- packing, version 1\n+++ packing\n")
    assert "-  - {unit: RamFilter}" in out
    assert listed(stored)["packing"]["Version"] == 1
    status, out, _ = stored("policy", "import", policy_file(CHANGED), "--yes")
    assert (status, out.splitlines()[-1]) == (0, "changed: packing")
    said = "These policies are stored already; there is nothing to change.\n"
    assert stored("policy", "import", policy_file(CHANGED))[:2] == (0, said)


def test_a_policy_of_a_file_keeps_its_id_or_is_found_by_its_name(stored, policy_file):
    named = {name: value for name, value in CHANGED.items() if name != "id"}
    assert stored("policy", "import", policy_file(named | {"name": "Packing"}), "--yes")[0] == 0
    row = listed(stored)["Packing"]
    assert (row["Id"], row["Version"]) == ("p1", 2)


def test_all_of_a_file_is_checked_before_anything_is_changed(stored, policy_file):
    wrong = {"id": "p3", "name": "wrong", "filters": [{"unit": "RamFiltre"}]}
    status, _, err = stored("policy", "import", policy_file(CHANGED, wrong), "--yes")
    assert (status, "did you mean RamFilter" in err) == (1, True)
    assert listed(stored)["packing"]["Version"] == 1
    taken = {"id": "p3", "name": "Loaded"}
    status, _, err = stored("policy", "import", policy_file(taken), "--yes")
    assert (status, "'Loaded'" in err) == (1, True)


# What POLICY means


def test_a_policy_is_named_by_id_name_version_or_cluster(stored, policy_file):
    stored("policy", "import", policy_file(CHANGED), "--yes")
    stored("policy", "attach", "loaded", "west", "--parameter", "HighUtilization=70")

    def shown(name):
        return plain(stored, "policy", "show", name)

    assert shown("p1") == shown("packing") == shown("PACKING")
    assert (shown("packing")["version"], shown("packing@1")["version"]) == (2, 1)
    assert shown("p1@1")["filters"] == PACKING["filters"]
    assert shown("east")["name"] == "nova"
    assert (shown("west")["cluster"], shown("west")["parameters"]) == (
        "west", {"HighUtilization": "70"}
    )  # fmt: skip
    assert shown("loaded")["parameters"] == {"HighUtilization": "80"}
    assert "-  - {unit: RamFilter}" in stored("policy", "diff", "packing@1", "packing")[1]
    assert stored("policy", "diff", "packing@2", "packing") == (0, "", "")


def test_a_name_that_means_nothing_is_refused(stored):
    for name, problem in (
        ("nowhere", "There is no policy or cluster 'nowhere'"),
        ("packing@7", "the history of 'packing' has no version 7; it has: 1"),
        ("nothing@1", "it has: none"),
    ):
        status, _, err = stored("policy", "show", name)
        assert (status, problem in err) == (1, True), err
    for name in ("east", "packing@1"):  # only a policy itself is removed
        assert stored("policy", "remove", name)[0] == 1


def test_a_policy_with_the_name_of_a_cluster_comes_before_it(stored, policy_file):
    stored("policy", "import", policy_file({"id": "p3", "name": "east"}), "--yes")
    assert plain(stored, "policy", "show", "east")["id"] == "p3"


def test_an_old_version_comes_back_by_export_and_import(stored, policy_file, tmp_path):
    stored("policy", "import", policy_file(CHANGED), "--yes")
    status, _, err = stored("policy", "attach", "packing@1", "east")
    assert (status, "`policy import`" in err) == (1, True)
    old = tmp_path / "old.yaml"
    old.write_text(stored("policy", "export", "packing@1")[1])
    assert stored("policy", "import", str(old), "--yes")[0] == 0
    assert stored("policy", "diff", "packing@1", "packing@3") == (0, "", "")


def test_an_export_has_each_policy_once(stored, policy_file):
    stored("policy", "import", policy_file(CHANGED), "--yes")
    assert stored("policy", "export", "packing", "p1")[1].count("name:") == 1
    status, out, err = stored("policy", "export", "packing", "packing@1")
    assert (status, out, "another text of a policy" in err) == (2, "", True)
    names = re.findall("name: (.*)", stored("policy", "export")[1])
    assert names == ["loaded", "packing"]
    [own] = yaml.safe_load(stored("policy", "export", "east")[1])["policies"]
    assert (own["name"], own["id"] == "nova") == ("east", False)


# Clusters


def test_clusters_get_values_of_their_own_or_those_of_another_cluster(stored):
    given = ("--parameter", "HighUtilization=70")
    assert stored("policy", "attach", "Loaded", "east", *given)[:2] == (0, "east: loaded@1\n")
    assert stored("policy", "attach", "east", "west")[0] == 0
    assert stored("policy", "diff", "east", "west") == (0, "", "")
    assert stored("policy", "attach", "loaded", "west")[0] == 0
    assert "-  parameters: {HighUtilization: '70'}" in stored("policy", "diff", "east", "west")[1]
    status, _, err = stored("policy", "attach", "loaded", "east", "--parameter", "Nope=1")
    assert (status, "properties.Nope" in err) == (1, True)


def test_a_file_is_attached_in_its_next_version(stored, policy_file):
    assert stored("policy", "attach", policy_file(), "east")[:2] == (0, "east: packing@1\n")
    assert stored("policy", "attach", policy_file(CHANGED), "west")[:2] == (0, "west: packing@2\n")
    assert of_clusters(stored) == {"east": "packing@2", "west": "packing@2"}


def test_of_several_policies_one_has_to_be_named(run, policy_file):
    path = policy_file({"name": "a"}, {"name": "b"})
    status, _, err = run("policy", "attach", path, "east")
    assert (status, "--policy; there are: a, b" in err) == (2, True)
    assert run("policy", "attach", path, "east", "--policy", "b")[0] == 0


@pytest.mark.parametrize("what", ["packing", "file"])
def test_nothing_is_attached_where_one_of_the_clusters_is_unknown(stored, policy_file, what):
    word = policy_file() if what == "file" else what
    status, _, err = stored("policy", "attach", word, "east", "nowhere")
    assert (status, "'nowhere'" in err) == (1, True)
    assert {each.partition("@")[0] for each in of_clusters(stored).values()} == {"nova"}


def test_options_that_do_not_belong_to_what_is_attached_are_refused(stored, policy_file):
    for words in (
        ("packing", "east", "--policy", "packing"),
        (policy_file(), "east", "--parameter", "HighUtilization=1"),
        ("packing", "east", "--parameter", "HighUtilization"),
    ):
        assert stored("policy", "attach", *words)[0] == 2


# The editor


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Sets an editor that replaces a text by another; returns the files that it was given."""
    script, seen = tmp_path / "editor.py", tmp_path / "seen"
    seen.write_text("")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def replacing(old, new, status=0):
        script.write_text(
            "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\n"
            f"path.write_text(path.read_text().replace({old!r}, {new!r}))\n"
            f"pathlib.Path({str(seen)!r}).open('a').write(f'{{path}}\\n')\nsys.exit({status})\n"
        )
        monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
        return lambda: [Path(each) for each in seen.read_text().splitlines()]

    return replacing


FACTOR = ("factor: -1.0", "factor: 2.0")


@pytest.mark.parametrize("named", ["packing", "east"])
def test_all_clusters_that_get_an_edit_are_named_before_the_editor_opens(
    stored, editor, monkeypatch, capsys, named
):
    stored("policy", "attach", "packing", "east", "west")
    files, run_editor, said = editor(*FACTOR), edit_policy._open_editor, []

    def opened(path):
        said.append(capsys.readouterr().err)
        assert "# packing is the policy of clusters east, west" in path.read_text()
        run_editor(path)

    monkeypatch.setattr(edit_policy, "_open_editor", opened)
    status, out, err = stored("policy", "edit", named)
    assert (status, err) == (0, "")
    assert said == ["packing is the policy of clusters east, west: all of them get the change\n"]
    assert "+  - {unit: RAMWeigher, factor: 2.0}" in out
    assert out.endswith(f"{named}: packing@2\n")
    assert of_clusters(stored) == {"east": "packing@2", "west": "packing@2"}
    assert not files()[0].exists()


def test_a_policy_of_one_cluster_is_edited_without_a_warning(stored, editor):
    stored("policy", "attach", "packing", "east")
    editor(*FACTOR)
    assert stored("policy", "edit", "packing")[2] == ""
    assert of_clusters(stored)["east"] == "packing@2"


def test_what_is_built_in_becomes_a_policy_of_the_cluster(run, editor):
    editor("name: east", "name: own")
    status, out, _ = run("policy", "edit", "east")
    assert (status, out.splitlines()[-1]) == (0, "east: own@1")
    assert listed(run)["own"]["Clusters"] == ["east"]
    status, _, err = run("policy", "edit", "none")
    assert (status, "built in" in err) == (1, True)


def test_an_earlier_version_is_not_edited(stored, editor):
    files = editor(*FACTOR)
    status, _, err = stored("policy", "edit", "packing@1")
    assert (status, "earlier version" in err, files()) == (1, True, [])


def test_an_unchanged_text_changes_nothing(stored, editor):
    files = editor("no such text", "")
    assert stored("policy", "edit", "packing")[:2] == (0, "packing: nothing was changed\n")
    assert not files()[0].exists()


@pytest.mark.parametrize(
    ("wrong", "said", "expected"),
    [
        ("RamFilter", "Nope", 1),
        ("name: packing", "name: loaded", 1),
        ("id: p1", "id: p2", 2),
        ("policies:", "policys:", 2),
        ("name: packing", "name: [", 2),
    ],
)
def test_a_text_that_is_refused_is_kept(stored, editor, wrong, said, expected):
    files = editor(wrong, said)
    status, _, err = stored("policy", "edit", "packing")
    [kept] = files()
    assert status == expected
    assert f"the text is kept in {kept}" in err
    assert said in kept.read_text()
    assert (os.stat(kept).st_mode & 0o777) == 0o600
    assert listed(stored)["packing"]["Version"] == 1


@pytest.mark.parametrize("named", ["packing", "east"])
def test_a_refused_text_may_be_edited_again(stored, editor, monkeypatch, named):
    stored("policy", "attach", "packing", "east")
    files = editor("RamFilter", "Nope")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def readline(self, *_):
            editor("Nope", "DiskFilter")
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Terminal())
    status, out, err = stored("policy", "edit", named)
    assert (status, "Nope" in err, out.endswith(f"{named}: packing@2\n")) == (0, True, True)
    assert len(set(files())) == 1


def test_an_editor_that_fails_changes_nothing(stored, editor, monkeypatch):
    files = editor("RAMWeigher", "CPUWeigher", status=3)
    status, _, err = stored("policy", "edit", "packing")
    assert (status, "ended with 3" in err) == (2, True)
    assert files()[0].exists()
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    assert "cannot be run" in stored("policy", "edit", "packing")[2]
    assert listed(stored)["packing"]["Version"] == 1


@pytest.mark.parametrize("named", ["packing", "east"])
def test_an_edit_that_another_one_overtook_is_refused(stored, rest, editor, monkeypatch, named):
    stored("policy", "attach", "packing", "east")
    files, run_editor = editor("RamFilter", "DiskFilter"), edit_policy._open_editor

    def overtaken(path):
        run_editor(path)
        rest.call(put_policy, id="p1", name="other")

    monkeypatch.setattr(edit_policy, "_open_editor", overtaken)
    status, _, err = stored("policy", "edit", named)
    assert (status, "was changed by" in err, str(files()[0]) in err) == (1, True, True)
    assert plain(stored, "policy", "show", "east")["name"] == "other"


# Units and the audit


def test_units_are_listed_switched_and_removed(run, rest, policy_file):
    def units(*options):
        return {each["Name"]: each["Enabled"] for each in plain(run, "unit", "list", *options)}

    assert units() == {"FromFile": False}
    assert units("--all")["RamFilter"] is True
    using = {"id": "p3", "name": "using", "filters": [{"unit": "FromFile"}]}
    assert run("policy", "import", policy_file(using), "--yes")[0] == 1
    assert run("unit", "enable", "FromFile")[:2] == (0, "The filter FromFile is enabled\n")
    assert units() == {"FromFile": True}
    assert run("policy", "import", policy_file(using), "--yes")[0] == 0
    status, _, err = run("unit", "disable", UNIT.id_as(UnitKind.FILTER))
    assert (status, "used by using" in err) == (1, True)
    assert run("policy", "remove", "using")[0] == 0
    assert run("unit", "disable", UNIT.id_as(UnitKind.FILTER))[0] == 0
    assert run("unit", "remove", "FromFile")[:2] == (0, "The filter FromFile is removed\n")
    assert units() == {}
    for word in ("enable", "disable", "remove"):
        status, _, err = run("unit", word, "FromFile")
        assert (status, "There is no unit 'FromFile'" in err) == (1, True)
    assert run("unit", "enable", "RamFilter")[0] == 1


def test_the_audit_has_every_change(stored):
    stored("policy", "attach", "packing", "east")
    rows = plain(stored, "audit", "list", "--action", "cluster.attach")
    assert [(each["Resource"], each["Result"]) for each in rows] == [("east", "done")]


def test_the_audit_names_who_runs_a_command_without_a_worker(rest, capsys, policy_file):
    edges = Edges(rest)
    for words in ((), ("--user", "anna")):
        document = PACKING | {"id": f"p{len(words)}", "name": f"n{len(words)}"}
        line = ("policy", "import", policy_file(document), "--yes", *words)
        assert edges.run(capsys, *line, of=Manage)[0] == 0
    entries = rest.book.audit()[-2:]
    assert entries[0].user
    assert entries[1].user == "anna"
    assert all(each.origin.startswith("command on ") for each in entries)
