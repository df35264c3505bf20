"""``scheduler-workerctl tuning``: check a policy, try it out, ask it why."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from os.path import commonpath
from pathlib import Path
from typing import Any

from scheduler_worker.cli import charts
from scheduler_worker.cli.rehearsals import read_parameters, read_samples, read_text
from scheduler_worker.errors import ConfigError, PolicyError
from scheduler_worker.tuning import policy
from scheduler_worker.tuning.evaluate import Cycle, Diagnostic
from scheduler_worker.tuning.explain import Explanation, explanations
from scheduler_worker.tuning.issues import MOST_ISSUES
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.rehearsal import outputs_over_time, rehearse, repeated, table
from scheduler_worker.tuning.yaml_subset import Source

MAX_CYCLES = 10_000
_TERMINAL, _NONE = "terminal", "none"

_CHECK = """\
Read policies and tell everything that is wrong with them, each with its place and a caret:

  policy.yaml:6:5: E_SCHEMA: rules.half.functio: 'functio' is not known here; did you mean function?
        functio: constant
        ^

The files are checked together, as they would be loaded. Nothing is evaluated. Exit status 1 if
there is any issue.
"""
_RUN = """\
Evaluate policies cycle after cycle over samples of a host, with an agent that does as it is told,
and print what each output is after each cycle, what could not be evaluated, and a chart.

A file of samples, the simplest there is:

  samples:
    - load: {mem_free: 1000, mem_available: 16000}    # the host, as it reports itself
      vms:
        web: {cpu: {max_load: 100}, io: {read_bytes_per_s: 900}}
      cycles: 5                                       # for so many cycles
    - vms: {web: {io: {read_bytes_per_s: 0}}}         # all else stays as it was

The last sample counts for ever. docs/scheduler-workerctl.md tells the rest.
"""
_EXPLAIN = """\
Evaluate policies as `tuning run` does, and tell for each cycle, entity and output which rules
voted, with what weight, towards which target, what limited or held back their votes, and which
rules had no say and why.
"""
_SCHEMA = """\
Print the JSON Schema of policies, for editors that know YAML schemas. Save it beside the policies
as policy.schema.json and begin them with

  # yaml-language-server: $schema=policy.schema.json
"""


def add_to(groups: Any) -> None:
    """Add the group to the parsers of all groups."""
    group = groups.add_parser("tuning", help="policies that tune hosts and VMs")
    commands = group.add_subparsers(required=True, metavar="COMMAND", title="commands")

    check = _command(commands, "check", _CHECK, "tell everything that is wrong with policies")
    _add_policies(check)
    check.set_defaults(run=_check)

    run = _command(commands, "run", _RUN, "try policies out over samples: a table and a chart")
    _add_rehearsal(run)
    run.add_argument(
        "--chart",
        type=_chart,
        default=_TERMINAL,
        metavar="WHERE",
        help="'terminal' (as it is by default), 'none', or a FILE.png or FILE.svg, which needs "
        "the extra scheduler_worker[chart]",
    )
    run.set_defaults(run=_run)

    explain = _command(commands, "explain", _EXPLAIN, "tell why outputs got their values")
    _add_rehearsal(explain)
    explain.add_argument("--at", type=_seconds, metavar="SECONDS", help="only the cycle then")
    explain.add_argument(
        "--entity",
        default="*",
        metavar="NAME",
        help="only this one: 'host', a VM's name, VM/DISK, or a shell pattern of these",
    )
    explain.set_defaults(run=_explain)

    schema = _command(commands, "schema", _SCHEMA, "print the JSON Schema of policies")
    schema.set_defaults(run=_schema)


def _command(commands: Any, name: str, text: str, brief: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _add_policies(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a policy; several have a say together"
    )


def _add_rehearsal(command: argparse.ArgumentParser) -> None:
    _add_policies(command)
    command.add_argument(
        "--samples", required=True, type=Path, metavar="FILE", help="what the host reports"
    )
    command.add_argument(
        "--parameters",
        type=Path,
        metavar="FILE",
        help="names and values that rules see under 'policy', as an operator sets them for a "
        "cluster; what a sample has under 'policy' goes before them",
    )
    command.add_argument(
        "--cycles", type=_count, metavar="N", help="how many; as many as the samples have if unsaid"
    )
    command.add_argument(
        "--interval",
        type=_interval,
        default=15.0,
        metavar="SECONDS",
        help="the time from one cycle to the next; 15 if unsaid",
    )


# Commands


def _check(told: argparse.Namespace) -> int:
    sources = _sources(told.files)
    try:
        program = policy.load(sources)
    except PolicyError as error:
        count = len(error.issues)
        least = "at least " if count >= MOST_ISSUES else ""
        _say(str(error), f"{least}{_counted(count, 'issue')} in {_files(sources)}")
        return 1
    outputs = [output for plan in program.plans.values() for output in plan.outputs]
    rules = sum(len(output.rules) for output in outputs)
    _say(f"no issues: {_counted(rules, 'rule')} in {_files(sources)}")
    return 0


def _run(told: argparse.Namespace) -> int:
    program, cycles = _rehearsed(told)
    series = outputs_over_time(cycles)
    if series:
        _say(table(cycles, interval_s=told.interval))
    _say(*_diagnosed(cycles, told.interval), *_unseen(program, cycles))
    if told.chart == _TERMINAL:
        width = shutil.get_terminal_size().columns
        _say(*charts.in_terminal(series, interval_s=told.interval, width=width))
    elif told.chart != _NONE:
        charts.in_file(series, interval_s=told.interval, path=Path(told.chart))
    return 0


def _explain(told: argparse.Namespace) -> int:
    program, cycles = _rehearsed(told)
    found = False
    for number in _cycles_at(told.at, told.interval, len(cycles)):
        chosen = [
            each
            for each in explanations(cycles[number], everything=True)
            if fnmatchcase(str(each.entity), told.entity)
        ]
        if chosen:
            found = True
            _say(f"at {number * told.interval:g} s:", *_explained(chosen, cycles[number]))
    if not found and told.entity != "*":
        known = sorted({str(each) for cycle in cycles for each in cycle.memory.evaluated_at_s})
        raise ConfigError(
            f"--entity: no rule was evaluated for {told.entity!r} then; choose one of: "
            f"{', '.join(known)}"
        )
    _say(*_unseen(program, cycles))
    return 0


def _schema(_told: argparse.Namespace) -> int:
    schema = files("scheduler_worker.tuning").joinpath("policy.schema.json")
    sys.stdout.write(schema.read_text(encoding="utf-8"))
    return 0


# Their parts


def _sources(paths: Iterable[Path]) -> list[Source]:
    return [Source(str(path), read_text(path)) for path in dict.fromkeys(paths)]


def _program(paths: Sequence[Path]) -> Program:
    """Issues name files as they were given, for editors; rules are told of by shorter names."""
    sources = _sources(paths)
    policy.load(sources)
    top = commonpath([Path(each.name).absolute().parent for each in sources])
    return policy.load(
        Source(str(Path(each.name).absolute().relative_to(top)), each.text) for each in sources
    )


def _rehearsed(told: argparse.Namespace) -> tuple[Program, list[Cycle]]:
    program = _program(told.files)
    parameters = read_parameters(told.parameters) if told.parameters else {}
    samples = read_samples(told.samples, parameters, at_most=MAX_CYCLES)
    cycles = repeated(samples, told.cycles or len(samples))
    return program, rehearse(program, cycles, interval_s=told.interval)


def _diagnosed(cycles: Sequence[Cycle], interval_s: float) -> Iterator[str]:
    """A line for each thing that went wrong, however many entities and cycles it befell."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, cycle in enumerate(cycles):
        for each in cycle.diagnostics:
            whom = found.setdefault((each.rule, _fault(each)), {})
            whom.setdefault(str(each.entity), []).append(number)
    for (rule, fault), whom in found.items():
        numbers = sorted({number for some in whom.values() for number in some})
        first, *others = whom
        said = f"{first} and {len(others)} more" if others else first
        yield (
            f"{rule}: {fault}: {said}, in {len(numbers)} of {_counted(len(cycles), 'cycle')}, "
            f"first at {numbers[0] * interval_s:g} s"
        )


def _fault(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.kind} {diagnostic.detail}".rstrip()


def _unseen(program: Program, cycles: Sequence[Cycle]) -> Iterator[str]:
    """Scopes of which the samples have nobody, so that their rules say nothing."""
    for scope in program.plans:
        if not any(scope in cycle.turns for cycle in cycles):
            yield f"no {scope.value} is in the samples; rules of this scope were not evaluated"


def _explained(chosen: Iterable[Explanation], cycle: Cycle) -> Iterator[str]:
    faults: dict[tuple[str, str], str] = {}
    for diagnostic in cycle.diagnostics:
        faults.setdefault((str(diagnostic.entity), diagnostic.rule), _fault(diagnostic))
    for each in chosen:
        said = [str(each)]
        for rule in each.silent:
            fault = faults.get((str(each.entity), rule))
            said.append(f"  {rule}: {f'left out: {fault}' if fault else 'does not count now'}")
        yield from (f"  {line}" for text in said for line in text.splitlines())


def _cycles_at(at_s: float | None, interval_s: float, count: int) -> Sequence[int]:
    if at_s is None:
        return range(count)
    number = round(at_s / interval_s)
    if number >= count or not math.isclose(number * interval_s, at_s):
        last_s = (count - 1) * interval_s
        raise ConfigError(
            f"--at: no cycle is at {at_s:g} s; they are every {interval_s:g} s from 0 to {last_s:g}"
        )
    return [number]


# Arguments and words


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_CYCLES:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 to {MAX_CYCLES}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds, such as 15")
    return seconds


def _interval(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise argparse.ArgumentTypeError("there is some time from one cycle to the next")
    return seconds


def _chart(text: str) -> str:
    if text in {_TERMINAL, _NONE} or Path(text).suffix in charts.SUFFIXES:
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r}: write {_TERMINAL}, {_NONE}, or a file that ends in "
        f"{' or '.join(charts.SUFFIXES)}"
    )


def _files(sources: Sequence[Source]) -> str:
    return _counted(len(sources), "file")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
