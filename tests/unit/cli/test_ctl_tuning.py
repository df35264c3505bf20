"""Dry runs of tuning policies: samples, parameters, tables, charts, explanations."""

import re
import sys
from pathlib import Path

import pytest

from scheduler_worker.cli import charts
from scheduler_worker.cli.ctl import main
from scheduler_worker.cli.tuning import read_parameters, read_samples
from scheduler_worker.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "docs" / "scheduler-workerctl.md"
DOWN = """\
scope: VM
rules:
  down:
    output: x.out
    target: policy.goal
    function: {name: linear, change: 1, time: 1 sec}
"""
START = "samples: [{vms: {web: {x: {out: 100}, policy: {goal: 70}}}}]"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files into the working directory: name_yaml=text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def write(**texts):
        for name, text in texts.items():
            Path(name.replace("_yaml", ".yaml")).write_text(text)

    write(p_yaml=DOWN, s_yaml=START)
    return write


def run(command, *options):
    return main(["tuning", command, "p.yaml", "--samples", "s.yaml", *options])


def samples(text, parameters=None):
    Path("s.yaml").write_text(text)
    return read_samples(Path("s.yaml"), parameters or {}, at_most=100)


# Samples and parameters


def test_a_sample_is_a_report(files):
    [sample] = samples("""
samples:
  - load: {mem_free: 5, ksm: {run: 0}}
    vms: {web: {up: true, memory: {balloon: 1e3}, disks: {vda: {io: {reads: -0.5}}}}}
""")
    assert sample.host["host"]["mem_free"] == 5
    assert sample.host["ksm"] == {"run": 0}
    assert sample.vms["web"]["memory"] == {"balloon": 1000.0}
    assert sample.vms["web"]["vm"]["up"] is True
    assert sample.disks["web"]["vda"]["io"] == {"reads": -0.5}


def test_what_a_sample_omits_stays_and_null_deletes(files):
    found = samples("""
samples:
  - vms: {web: {m: {a: 1, b: 2}}, db: {m: {a: 3}}}
    cycles: 2
  - vms: {web: {m: {a: null, b: 4}}, db: null}
  - load: {free: 1}
""")
    assert [{name: vm["m"] for name, vm in each.vms.items()} for each in found] == [
        *[{"web": {"a": 1, "b": 2}, "db": {"a": 3}}] * 2,
        *[{"web": {"b": 4}}] * 2,
    ]
    assert ["free" in each.host["host"] for each in found] == [False, False, False, True]


def test_numbers_of_other_notations_are_texts_as_in_policies(files):
    odd = ["yes", "010", "0x1F", "1_000", "1:30", ".inf", "'1'", "2020-01-01"]
    [sample] = samples(
        f"samples: [{{load: {{x: {{{', '.join(f'k{n}: {v}' for n, v in enumerate(odd))}}}}}}}]"
    )
    assert [*sample.host["x"].values()] == [each.strip("'") for each in odd]


def test_a_reported_policy_takes_precedence_over_the_parameters(files):
    [sample] = samples(START, {"goal": 10, "other": 1})
    assert sample.vms["web"]["policy"] == {"goal": 70, "other": 1}
    assert sample.host["policy"] == {"goal": 10, "other": 1}


def test_parameters_may_be_empty(files):
    files(a_yaml="# nothing\n", b_yaml="on: true\noff: null\n")
    assert read_parameters(Path("a.yaml")) == {}
    assert read_parameters(Path("b.yaml")) == {"on": True}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "s.yaml: write a mapping of 'samples:' and a list, not nothing"),
        ("sample: []", "s.yaml: 'sample' is not known here; did you mean samples?"),
        ("samples: []", "s.yaml: samples: write a list with an entry for each change"),
        ("samples: [5]", "s.yaml: sample 1: write a mapping of 'load:', 'vms:' and 'cycles:', as "
         "far as they change, not 5"),
        ("samples: [{vmss: {}}]", "s.yaml: sample 1: 'vmss' is not known here; did you mean vms?"),
        ("samples: [{}, {vms: [web]}]",
         "s.yaml: sample 2.vms: write a mapping of names and their values, not ['web']"),
        ("samples: [{vms: {web: 5}}]",
         "s.yaml: sample 1.vms.web: write a mapping of names and their values, not 5"),
        ("samples: [{vms: {web: {disks: {vda: 1}}}}]",
         "s.yaml: sample 1.vms.web.disks.vda: write a mapping of names and their values, not 1"),
        ("samples: [{vms: {7: {}}}]",
         "s.yaml: sample 1.vms: write the name 7 in quotes; names are texts"),
        ("samples: [{cycles: 0}]",
         "s.yaml: sample 1.cycles: write a whole number above 0, not 0"),
        ("samples: [{cycles: 99}, {cycles: 2}]",
         "s.yaml: sample 2.cycles: the file has more than 100 cycles"),
        ("samples:\n  - {load: {a: 1}", "s.yaml:3:1: did not find expected ',' or '}'"),
        ("samples: !!python/name:os.system",
         "s.yaml:1:10: could not determine a constructor for the tag "
         "'tag:yaml.org,2002:python/name:os.system'"),
        ("[" * 5000, None),
        ("samples: [{load: &a {b: *a}}]",
         "s.yaml: sample 1: is nested too deeply, or contains itself"),
        ("samples:\n- vms: {web: {a: {b: 1}}, web: {}}",
         "s.yaml:2:27: duplicate key 'web'"),
    ],
)  # fmt: skip
def test_invalid_samples_are_refused_with_entry_and_reason(files, text, problem):
    with pytest.raises(ConfigError) as refused:
        samples(text)
    assert problem is None or str(refused.value) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "- 1",
            "p.yaml: write a mapping of names and values, such as 'io_threshold: 500', not [1]",
        ),
        ("goal: [1]", "p.yaml: goal: write a number, true, false or a text, not [1]"),
        ("goal: {a: 1}", "p.yaml: goal: write a number, true, false or a text, not {'a': 1}"),
        ("goal: 1\ngoal: 2", "p.yaml:2:1: duplicate key 'goal'"),
    ],
)
def test_parameters_are_scalars_without_duplicates(files, text, problem):
    files(p_yaml=text)
    with pytest.raises(ConfigError) as refused:
        read_parameters(Path("p.yaml"))
    assert str(refused.value) == problem


def test_a_vm_may_be_given_another_name(files):
    [sample] = samples("samples: [{vms: {web: {}, db: {name: base}}}]")
    assert [vm["vm"] for vm in sample.vms.values()] == [
        {"id": "web", "name": "web"},
        {"id": "db", "name": "base"},
    ]


def test_an_output_with_a_text_is_shown_as_unknown(files, capsys):
    files(s_yaml="samples: [{vms: {web: {x: {out: ten}, policy: {goal: 70}}}}]")
    assert run("run", "--chart", "none") == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["0", "-"]


def test_the_samples_of_the_manual_are_valid(files):
    [text] = re.findall(r"```yaml\n(samples:.*?)```", MANUAL.read_text(), re.DOTALL)
    assert [sorted(each.vms) for each in samples(text)] == [*[["web"]] * 4, ["db", "web"], ["db"]]


# run


def test_there_are_as_many_cycles_as_samples(files, capsys):
    files(s_yaml="samples: [{vms: {web: {x: {out: 1}, policy: {goal: 0}}}, cycles: 2}, {}]")
    assert run("run", "--chart", "none") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3


def test_a_vm_that_leaves_is_unknown_meanwhile_and_returns_without_state(files, capsys):
    files(
        s_yaml="""
samples:
  - &web {vms: {web: {x: {out: 100}, policy: {goal: 70}}, db: {x: {out: 70}, policy: {goal: 70}}}}
  - {}
  - {vms: {web: null}}
  - *web
"""
    )
    assert run("run", "--chart", "none") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["100", "85", "-", "100"]


def test_what_could_not_be_evaluated_is_printed_once(files, capsys):
    files(s_yaml="samples: [{vms: {a: {}, b: {}, c: {x: {out: 1}, policy: {goal: 1}}}}]")
    assert run("run", "--cycles", "3", "--chart", "none") == 0
    assert capsys.readouterr().out.splitlines()[4:] == [
        "p.yaml:down: missing_property policy.goal (p.yaml:5:13): a and 1 more, in 3 of 3 cycles, "
        "first at 0 s"
    ]


def test_a_scope_without_entities_is_reported(files, capsys):
    files(s_yaml="samples: [{load: {mem_free: 1}}]")
    for command in ("run", "explain"):
        assert run(command) == 0
        assert capsys.readouterr().out == (
            "no VM is in the samples; rules of this scope were not evaluated\n"
        )


def test_a_policy_with_issues_is_not_run(files, capsys):
    files(p_yaml=DOWN.replace("down", "do wn"))
    assert run("run") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("p.yaml:3:3: E_NAME: ")


def test_files_of_several_directories_have_different_names(files, capsys):
    for name in ("a", "b"):
        Path(name).mkdir()
        (Path(name) / "p.yaml").write_text(DOWN)
    main(["tuning", "explain", "a/p.yaml", "b/p.yaml", "--samples", "s.yaml"])
    assert re.findall(r"^    (\S+): weight 1", capsys.readouterr().out, re.MULTILINE) == [
        "a/p.yaml:down",
        "b/p.yaml:down",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--cycles", "0"),
        ("--cycles", "10001"),
        ("--cycles", "some"),
        ("--interval", "0"),
        ("--interval", "nan"),
        ("--interval", "-1"),
        ("--chart", "picture.bmp"),
    ],
)
def test_invalid_arguments_are_refused_with_the_fix(files, wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        run("run", *wrong)
    assert ended.value.code == 2
    assert re.search(rf"argument {wrong[0]}: .*(write|there is)", capsys.readouterr().err)


# Charts


def chart(*values, width=80):
    return [*charts.in_terminal({"x": values}, interval_s=1, width=width)][2:-2]


def test_a_chart_has_constant_unknown_and_huge_values():
    assert chart(5.0, 5.0) == ["  5 ┤▁▁▁▁▁▁▁▁"]
    assert chart(None, 3.0)[-1] == "  3 ┤    ▁▁▁▁"
    assert [*charts.in_terminal({"x": [None]}, interval_s=1, width=80)] == ["", "x", "  unknown"]
    top, *_, bottom = chart(-1.7e308, 0.0, 1.7e308)
    assert top == "   1.7e+308 ┤        ████"
    assert bottom.endswith("┤▁▁▁▁████████")
    assert chart(0.0, 5e-324)[-1].endswith("▁▁▁▁████")


def test_a_chart_fits_into_the_terminal():
    for count in (10, 39, 40, 41, 1000):
        lines = chart(*map(float, range(count)), width=40)
        assert 30 <= max(map(len, lines)) <= 40
        assert lines[-1].strip().startswith("0 ┤▁")


def test_a_picture_without_matplotlib_names_the_extra(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("run", "--chart", "x.png") == 2
    error = capsys.readouterr().err
    assert "--chart x.png, unlike --chart terminal, needs a package that is missing" in error
    assert error.endswith("run: pip install 'scheduler_worker[chart]'\n")


def test_a_picture_is_written(files, capsys):
    assert run("run", "--cycles", "4", "--chart", "x.png") == 0
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert run("run", "--cycles", "4", "--chart", "x.svg") == 0
    assert "<svg" in Path("x.svg").read_text()
    assert run("run", "--chart", "away/x.png") == 2
    assert "away/x.png: cannot be written: No such file" in capsys.readouterr().err


# explain


TWO = """\
scope: VM
rules:
  low: {output: x.out, target: 0, influence: 3, max_absolute_change: 2}
  high: {output: x.out, target: 100, when: x.on}
  lost: {output: x.out, target: x.nowhere}
"""


def test_every_rule_of_every_output_is_explained(files, capsys):
    files(p_yaml=TWO, s_yaml="samples: [{vms: {web: {x: {out: 50, on: false}}}}]")
    assert run("explain", "--cycles", "2", "--interval", "10", "--at", "10") == 0
    assert capsys.readouterr().out.splitlines() == [
        "at 10 s:",
        "  web x.out: 50 -> 30",
        "    p.yaml:low: weight 3, target 0, after 10 s: 0, limited by max_absolute_change, "
        "votes for 30",
        "    p.yaml:high: not triggered",
        "    p.yaml:lost: skipped: missing_property x.nowhere (p.yaml:5:33)",
    ]


def test_an_output_without_a_vote_is_explained(files, capsys):
    high = [line for line in TWO.splitlines() if "low" not in line]
    files(p_yaml="\n".join(high), s_yaml="samples: [{vms: {web: {x: {on: 0}}}}]")
    assert run("explain") == 0
    assert "  web x.out: stays unknown\n    p.yaml:high: not triggered" in capsys.readouterr().out


def test_one_entity_is_explained(files, capsys):
    files(s_yaml="samples: [{vms: {web1: {}, web2: {}, db: {}}}]")
    assert run("explain", "--entity", "web*") == 0
    assert re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE) == ["web1", "web2"]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--at", "20"), "--at: no cycle is at 20 s; they are every 15 s from 0 to 30"),
        (("--at", "45"), "--at: no cycle is at 45 s; they are every 15 s from 0 to 30"),
        (("--entity", "wbe"), "--entity: no rule was evaluated for 'wbe' then; choose one of: web"),
    ],
)
def test_a_cycle_or_entity_that_does_not_exist_is_refused(files, capsys, option, problem):
    assert run("explain", "--cycles", "3", *option) == 2
    assert capsys.readouterr().err == f"scheduler-workerctl: {problem}\n"
