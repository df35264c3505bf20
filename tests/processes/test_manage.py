"""scheduler-worker-manage: its tables and policies in a SQLite archive, as its manual has them."""

import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_worker.cli.policy_texts import read_policies, write_policies
from scheduler_worker.errors import ConfigError
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
)
from tests.support.desk import Desk

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "scheduler-worker-manage.md"
PACKING = """\
policies:
- id: 0b6c1f0e
  name: packing
  filters:
  - {unit: RamFilter, position: first}
  weights:
  - {unit: RAMWeigher, factor: 2.0}
  selector: {unit: RankSum}
"""


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def answers(monkeypatch):
    """Makes standard input a terminal on which this is typed."""

    def type_in(text: str) -> None:
        terminal = io.StringIO(text)
        terminal.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", terminal)

    return type_in


def test_who_changed_what_is_read_from_the_archive(desk):
    desk.run("policy", "import", desk.file(PACKING), "--yes", "--user", "anna")
    more = PACKING.replace("factor: 2.0", "factor: 3.0")
    desk.run("policy", "import", desk.file(more), "--yes", "--user", "bert")
    asked = ("policy", "history", "packing", "-f", "json")
    status, out = desk.run(*asked)
    assert status == 0
    edits = [(each["Action"], each["Version"], each["By"]) for each in json.loads(out)]
    assert edits == [("create", 1, "anna"), ("update", 2, "bert")]
    columns = ("-f", "value", "-c", "Action", "-c", "User")
    assert desk.run("audit", "list", "--user", "bert", *columns) == (0, "bert policy.update\n")
    assert desk.run("audit", "list", "--until", "1h", *columns) == (0, "")
    assert desk.run("cluster", "history", "east", "-f", "value") == (0, "")


def test_a_change_of_a_state_in_memory_says_who_has_it(desk, capsys):
    assert desk.run("policy", "import", desk.file(PACKING), "--yes")[0] == 0
    assert "only processes that start after this have it" in capsys.readouterr().err
    assert desk.run("policy", "export")[0] == 0
    assert capsys.readouterr().err == ""


def test_a_change_that_nothing_would_keep_is_refused(desk, capsys):
    desk.connect("")
    assert desk.run("policy", "export") == (0, "policies: []\n")
    status, output = desk.run("policy", "import", desk.file(PACKING), "--yes")
    assert (status, output) == (2, "")
    assert "nothing would keep the change" in capsys.readouterr().err


def test_commands_that_only_read_are_no_edits(desk):
    desk.run("policy", "import", desk.file(PACKING), "--yes")
    asked = ("audit", "list", "-f", "value", "-c", "Action")
    before = desk.run(*asked)[1]
    for words in ("policy list", "unit list", "policy show packing", "cluster history east"):
        assert desk.run(*words.split())[0] == 0
    after = desk.run(*asked)[1]
    assert set(after.removeprefix(before).split()) <= {"book.found"}


def test_an_attachment_to_a_policy_outlives_the_state(desk):
    desk.run("policy", "import", desk.file(PACKING), "--yes")
    assert desk.run("policy", "attach", "packing", "default") == (0, "default: packing@1\n")
    assert desk.listed()["packing"]["Clusters"] == ["default"]
    assert desk.run("policy", "detach", "default")[0] == 0
    assert desk.run("policy", "remove", "packing") == (0, "removed: packing\n")
    assert desk.stored() == "policies: []\n"


def test_a_downgrade_asks_first(desk, answers, capsys):
    desk.run("db", "upgrade")
    assert desk.run("db", "downgrade", "0001") == (1, "")  # no terminal
    assert "pass --yes" in capsys.readouterr().err
    answers("n\n")
    assert desk.run("db", "downgrade", "0001") == (1, "")
    assert "from version 0003 down to 0001" in capsys.readouterr().err
    answers("y\n")
    assert desk.run("db", "downgrade", "0001")[0] == 0
    assert desk.run("db", "upgrade") == (0, "The tables are from version 0001 to 0003.\n")


def test_import_shows_a_diff_and_asks(desk, answers):
    path = desk.file(PACKING)
    answers("no\n")
    status, output = desk.run("policy", "import", path)
    assert (status, desk.stored()) == (1, "policies: []\n")
    assert "+++ packing\n" in output
    assert "+  - {unit: RamFilter, position: first}\n" in output
    answers("yes\n")
    assert desk.run("policy", "import", path)[1].endswith("created: packing\n")
    assert desk.stored() == PACKING
    changed = PACKING.replace("factor: 2.0", "factor: 3.0")
    status, output = desk.run("policy", "import", desk.file(changed), "--yes", "--user", "anna")
    assert status == 0
    assert "--- packing, version 1\n" in output
    assert "-  - {unit: RAMWeigher, factor: 2.0}\n+  - {unit: RAMWeigher, factor: 3.0}\n" in output
    assert desk.stored() == changed
    row = desk.listed()["packing"]
    assert (row["Id"], row["Version"], row["Changed By"]) == ("0b6c1f0e", 2, "anna")


def test_a_policy_without_id_is_found_by_its_name(desk):
    desk.run("policy", "import", desk.file(PACKING), "--yes")
    named = PACKING.replace("- id: 0b6c1f0e\n  name: packing", "- name: Packing")
    assert desk.run("policy", "import", desk.file(named), "--yes")[0] == 0
    assert desk.stored() == PACKING.replace("name: packing", "name: Packing")


def test_a_file_with_one_invalid_policy_changes_nothing(desk, capsys):
    wrong = PACKING + "- {id: other, name: other, filters: [{unit: RamFiltre}]}\n"
    assert desk.run("policy", "import", desk.file(wrong), "--yes")[0] == 1
    assert "did you mean RamFilter" in capsys.readouterr().err
    assert desk.stored() == "policies: []\n"


def test_a_built_in_policy_is_exported_and_not_imported(desk, capsys):
    status, text = desk.run("policy", "export", "NOVA")
    assert status == 0
    assert "name: nova\n" in text
    assert desk.run("policy", "import", desk.file(text.replace("RamFilter", "CoreFilter")))[0] == 1
    assert "built-in" in capsys.readouterr().err


def test_a_copy_of_nova_is_made_as_the_guide_for_its_users_says(desk, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "migrating-from-nova.md").read_text()
    (tmp_path / "mine.yaml").write_text(desk.run("policy", "export", "nova")[1])
    [command] = re.findall(r"^\$ (sed .* mine\.yaml)$", text, re.MULTILINE)
    subprocess.run(shlex.split(command), check=True)
    assert desk.run("policy", "import", "mine.yaml", "--yes")[0] == 0
    stored = desk.run("policy", "export", "mine")[1]
    assert "- {unit: ComputeFilter}\n" in stored
    assert "- {unit: RAMWeigher, factor: 1.0}\n" in stored
    assert "- {unit: IoOpsWeigher, factor: -1.0}\n" in stored


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected one field `policies`"),
        ("policies: 5", "policies: expected a list"),
        ("policies: [5]", r"policies\[0\]: expected a policy with the fields id, name"),
        ("policies: [{}]", r"policies\[0\]: .*missing required field `name`"),
        ("policies: [{name: a, filter: []}]", r"policies\[0\] a: .*unknown field `filter`"),
        ("policies: [{name: a, version: 2}]", "version: grows by itself"),
        ("policies: [{name: a, parameters: {b: 80}}]", "numbers in quotes"),
        ("policies: [{name: a}, {name: A}]", "two policies have the name 'a'"),
        ("policies: [{name: a, id: b}, {name: c, id: b}]", "two policies have the id 'b'"),
        ("policies: [{name: a, name: b}]", "1:22: duplicate key 'name'"),
        ("policies: [", "did not find expected"),
        ("policies: " + "[" * 5000, "exceeded maximum nesting depth"),
        ("policies: [{name: !!python/name:os.system ''}]", "could not determine a constructor"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_field(text, problem):
    with pytest.raises(ConfigError, match=f"policies.yaml:.*{problem}"):
        read_policies(text, "policies.yaml")


def test_errors_have_a_status_and_no_secret(desk, capsys, caplog):
    assert desk.run("policy", "export", "gone")[0] == 1
    assert desk.run("policy", "import", "/gone.yaml")[0] == 2
    desk.connect("postgresql://anna:secret@127.0.0.1:1/policies")
    assert desk.run("policy", "list")[0] == 2
    desk.connect("oracle://anna:secret@host/policies")
    assert desk.run("db", "version")[0] == 2
    said = capsys.readouterr().err
    assert "'gone'" in said
    assert "/gone.yaml" in said
    assert "127.0.0.1" in said
    assert "'oracle' is not supported" in said
    assert "secret" not in said
    assert caplog.text == ""  # they are said once


def test_tables_of_another_version_are_refused_with_the_command(desk, capsys):
    desk.run("db", "upgrade", "0001")
    assert desk.run("policy", "list")[0] == 2
    assert "run: scheduler-worker-manage db upgrade" in capsys.readouterr().err


# Any policy

names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20
)
parameters = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20),
    max_size=3,
)
uses = {"unit": names, "name": st.none() | names, "parameters": parameters}
policies = st.builds(
    ClusterPolicy,
    id=names,
    name=names,
    version=st.just(1),
    description=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=50),
    filters=st.lists(
        st.builds(FilterUse, **uses, position=st.sampled_from(["first", "none", "last"])),
        max_size=3,
    ).map(tuple),
    weights=st.lists(st.builds(WeightUse, **uses, factor=st.floats(0, 1e308)), max_size=3).map(
        tuple
    ),
    balance=st.none() | st.builds(BalanceUse, **uses),
    selector=st.builds(SelectorUse, **uses),
    parameters=parameters,
)


@given(policies)
@example(ClusterPolicy(id="1e5", name="0E0", version=1, parameters={"1e5": "1e5"}))
def test_a_written_policy_is_read_as_it_was(policy):
    (read,) = read_policies(write_policies([policy]), "text")
    assert read == (policy, True)


# The manual


def test_the_manuals_session_has_the_output_shown_there(desk, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    text = MANUAL.read_text()
    (tmp_path / "packing.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    ran = 0
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for command, printed in re.findall(
            r"^\$ scheduler-worker-manage (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
        ):
            words, _, to_file = command.partition(" > ")
            _, output = desk.run(*shlex.split(words))
            if to_file:
                Path(to_file).write_text(output)
                output = ""
            assert output.replace(str(tmp_path), "/var/lib/scheduler_worker") == printed, command
            ran += 1
    assert ran >= 7
