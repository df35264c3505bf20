"""scheduler-workerctl: its output and exit status, as its manual has them."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from scheduler_worker.cli.ctl import Ctl, main
from scheduler_worker.cli.manage import Manage
from tests.support.pages import steps

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "docs" / "scheduler-workerctl.md"
POLICIES = ROOT / "etc" / "scheduler_worker" / "tuning"


def run(*arguments):
    """The exit status and the output."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main(arguments)
    return status, out.getvalue()


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tuning", "check", "away.yaml"]) == 2
    Path("latin.yaml").write_bytes(b"# \xe9\n")
    assert main(["tuning", "check", "latin.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "scheduler-workerctl: away.yaml: cannot be read: No such file or directory",
        "scheduler-workerctl: latin.yaml: is not UTF-8 text",
    ]


def test_the_schema_is_that_of_the_stock_policies():
    kept = (POLICIES / "policy.schema.json").read_text()
    assert run("tuning", "schema") == (0, kept), "run: make sample"


@pytest.mark.parametrize("program", [Ctl, Manage])
def test_every_command_has_a_description_and_is_in_the_manual(program):
    app = program()
    manual = (ROOT / "docs" / f"{app.NAME}.md").read_text()
    found = dict(app.command_manager)
    for name in found.keys() - {"help", "complete"}:
        assert f"## {name}\n" in manual  # of any level
        parser = found[name].load()(app, None).get_parser(name)
        assert len(str(parser.description)) > 25, name
        options = re.findall(r"--[a-z][a-z-]+", parser.format_usage())
        of_cliff = {"--help", "--quote", "--noindent", "--max-width", "--fit-width"}
        of_cliff |= {"--print-empty", "--prefix", "--variable"}
        assert [each for each in options if each not in of_cliff and each not in manual] == []


def test_wrong_arguments_have_a_status_of_their_own(capsys):
    nonsense = ["nonsense"], ["help", "nonsense"], ["nonsense", "--help"]
    for wrong in ([], ["tuning"], ["tuning", "chekc"], *nonsense, ["tuning", "check"]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2
    assert "FILE" in capsys.readouterr().err


EXAMPLES = [
    (step.command.removeprefix("scheduler-workerctl ").replace("\\\n", " "), step.printed)
    for step in steps(MANUAL.read_text())
    if step.command.startswith("scheduler-workerctl ")
]
"""The manual's commands, each with its output."""


@pytest.mark.parametrize(("command", "printed"), EXAMPLES)
def test_a_command_of_the_manual_has_the_output_shown_there(command, printed, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    words, _, to_file = command.partition(" > ")
    arguments = [
        path
        for word in shlex.split(words)
        for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    status, output = run(*arguments)
    assert status == (1 if "mistakes" in command else 0)
    assert output if to_file else output == printed


def test_the_manuals_files_are_those_of_the_examples():
    parameters = (ROOT / "tests/examples/tuning/cpu_parameters.yaml").read_text()
    assert "".join(parameters.splitlines(keepends=True)[1:]) in MANUAL.read_text()
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["worker", "drain", "--help"], "--wait SECONDS"),
        (["worker", "drain", "--config-file", "f", "--help"], "--wait SECONDS"),
        (["--config-file", "f", "worker", "drain", "--help"], "--wait SECONDS"),
        (["help", "worker", "drain"], "--wait SECONDS"),
        (["help", "worker"], "worker drain"),
        (["tuning", "run", "-h"], "--samples FILE"),
        (["help"], "exit status:"),
    ],
)
def test_every_form_of_help_is_one(words, shown):
    status, output = run(*words)
    assert (status, shown in output) == (0, True)
