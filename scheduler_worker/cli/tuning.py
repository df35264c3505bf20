"""``scheduler-workerctl tuning``: checks policies, dry-runs them, and explains their outputs."""

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
from scheduler_worker.cli.commands import add_command
from scheduler_worker.cli.dry_run_files import read_parameters, read_samples, read_text
from scheduler_worker.errors import ConfigError, TuningPolicyError
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.dry_run import dry_run, outputs_over_time, repeated, table
from scheduler_worker.tuning.evaluate import Cycle, Diagnostic
from scheduler_worker.tuning.explain import Explanation, explanations
from scheduler_worker.tuning.issues import MOST_ISSUES
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.yaml_subset import Source

MAX_CYCLES = 10_000
_TERMINAL, _NONE = "terminal", "none"

_CHECK = """\
Report all issues of policies, each with its place and a caret:

  policy.yaml:6:5: E_SCHEMA: rules.half.functio: 'functio' is not known here; did you mean function?
        functio: constant
        ^

The files are checked together, as they would be loaded. Nothing is evaluated. Exit status 1 if
there is any issue.
"""
_RUN = """\
Evaluate policies cycle by cycle over samples of a host, with a simulated agent that sets all
outputs. Print each output after each cycle, what could not be evaluated, and a chart.

A minimal file of samples:

  samples:
    - load: {mem_free: 1000, mem_available: 16000}    # what the host reports of itself
      vms:
        web: {cpu: {max_load: 100}, io: {read_bytes_per_s: 900}}
      cycles: 5                                       # the number of cycles
    - vms: {web: {io: {read_bytes_per_s: 0}}}         # all else stays the same

The last sample is repeated as long as needed. See docs/scheduler-workerctl.md.
"""
_EXPLAIN = """\
Evaluate policies as `tuning run` does, and print for each cycle, entity and output which rules
voted, their weights and targets, what limited or held back their votes, and which rules did not
vote and why.
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

    check = add_command(commands, "check", _CHECK, "report all issues of policies")
    _add_policies(check)
    check.set_defaults(run=_check)

    run = add_command(commands, "run", _RUN, "dry-run policies over samples: a table and a chart")
    _add_dry_run(run)
    run.add_argument(
        "--chart",
        type=_chart,
        default=_TERMINAL,
        metavar="WHERE",
        help="'terminal' (default), 'none', or a FILE.png or FILE.svg, which needs "
        "the extra scheduler_worker[chart]",
    )
    run.set_defaults(run=_run)

    explain = add_command(commands, "explain", _EXPLAIN, "explain the values of outputs")
    _add_dry_run(explain)
    explain.add_argument("--at", type=_seconds, metavar="SECONDS", help="only the cycle then")
    explain.add_argument(
        "--entity",
        default="*",
        metavar="NAME",
        help="only this entity: 'host', a VM's name, VM/DISK, or a shell pattern of these",
    )
    explain.set_defaults(run=_explain)

    schema = add_command(commands, "schema", _SCHEMA, "print the JSON Schema of policies")
    schema.set_defaults(run=_schema)


def _add_policies(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a policy; several are combined"
    )


def _add_dry_run(command: argparse.ArgumentParser) -> None:
    _add_policies(command)
    command.add_argument(
        "--samples", required=True, type=Path, metavar="FILE", help="what the host reports"
    )
    command.add_argument(
        "--parameters",
        type=Path,
        metavar="FILE",
        help="names and values that rules see under 'policy', as an operator sets them for a "
        "cluster; fields of 'policy' in a sample take precedence",
    )
    command.add_argument(
        "--cycles",
        type=_count,
        metavar="N",
        help="number of cycles; default: those of the samples",
    )
    command.add_argument(
        "--interval",
        type=_interval,
        default=15.0,
        metavar="SECONDS",
        help="the time from one cycle to the next; default: 15",
    )


# Commands


def _check(arguments: argparse.Namespace) -> int:
    sources = _sources(arguments.files)
    try:
        program = loader.load(sources)
    except TuningPolicyError as error:
        count = len(error.issues)
        least = "at least " if count >= MOST_ISSUES else ""
        _print(str(error), f"{least}{_counted(count, 'issue')} in {_files(sources)}")
        return 1
    outputs = [output for plan in program.plans.values() for output in plan.outputs]
    rules = sum(len(output.rules) for output in outputs)
    _print(f"no issues: {_counted(rules, 'rule')} in {_files(sources)}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    program, cycles = _dry_run(arguments)
    series = outputs_over_time(cycles)
    if series:
        _print(table(cycles, interval_s=arguments.interval))
    _print(*_diagnosed(cycles, arguments.interval), *_missing_scopes(program, cycles))
    if arguments.chart == _TERMINAL:
        width = shutil.get_terminal_size().columns
        _print(*charts.in_terminal(series, interval_s=arguments.interval, width=width))
    elif arguments.chart != _NONE:
        charts.in_file(series, interval_s=arguments.interval, path=Path(arguments.chart))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    program, cycles = _dry_run(arguments)
    found = False
    for number in _cycles_at(arguments.at, arguments.interval, len(cycles)):
        chosen = [
            each
            for each in explanations(cycles[number], everything=True)
            if fnmatchcase(str(each.entity), arguments.entity)
        ]
        if chosen:
            found = True
            _print(f"at {number * arguments.interval:g} s:", *_explained(chosen, cycles[number]))
    if not found and arguments.entity != "*":
        known = sorted({str(each) for cycle in cycles for each in cycle.state.evaluated_at_s})
        raise ConfigError(
            f"--entity: no rule was evaluated for {arguments.entity!r} then; choose one of: "
            f"{', '.join(known)}"
        )
    _print(*_missing_scopes(program, cycles))
    return 0


def _schema(_arguments: argparse.Namespace) -> int:
    schema = files("scheduler_worker.tuning").joinpath("policy.schema.json")
    sys.stdout.write(schema.read_text(encoding="utf-8"))
    return 0


# Parts of commands


def _sources(paths: Iterable[Path]) -> list[Source]:
    return [Source(str(path), read_text(path)) for path in dict.fromkeys(paths)]


def _program(paths: Sequence[Path]) -> Program:
    """Load the policies; issues name files as given, for editors, and rules have shorter names."""
    sources = _sources(paths)
    loader.load(sources)
    top = commonpath([Path(each.name).absolute().parent for each in sources])
    return loader.load(
        Source(str(Path(each.name).absolute().relative_to(top)), each.text) for each in sources
    )


def _dry_run(arguments: argparse.Namespace) -> tuple[Program, list[Cycle]]:
    program = _program(arguments.files)
    parameters = read_parameters(arguments.parameters) if arguments.parameters else {}
    samples = read_samples(arguments.samples, parameters, at_most=MAX_CYCLES)
    cycles = repeated(samples, arguments.cycles or len(samples))
    return program, dry_run(program, cycles, interval_s=arguments.interval)


def _diagnosed(cycles: Sequence[Cycle], interval_s: float) -> Iterator[str]:
    """Yield a line for each rule and kind of diagnostic, whatever the number of entities."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, cycle in enumerate(cycles):
        for each in cycle.diagnostics:
            entities = found.setdefault((each.rule, _fault(each)), {})
            entities.setdefault(str(each.entity), []).append(number)
    for (rule, fault), entities in found.items():
        numbers = sorted({number for some in entities.values() for number in some})
        first, *others = entities
        shown = f"{first} and {len(others)} more" if others else first
        yield (
            f"{rule}: {fault}: {shown}, in {len(numbers)} of {_counted(len(cycles), 'cycle')}, "
            f"first at {numbers[0] * interval_s:g} s"
        )


def _fault(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.kind} {diagnostic.detail}".rstrip()


def _missing_scopes(program: Program, cycles: Sequence[Cycle]) -> Iterator[str]:
    """Yield a line for each scope without an entity in the samples: its rules did nothing."""
    for scope in program.plans:
        if not any(scope in cycle.results for cycle in cycles):
            yield f"no {scope.value} is in the samples; rules of this scope were not evaluated"


def _explained(chosen: Iterable[Explanation], cycle: Cycle) -> Iterator[str]:
    faults: dict[tuple[str, str], str] = {}
    for diagnostic in cycle.diagnostics:
        faults.setdefault((str(diagnostic.entity), diagnostic.rule), _fault(diagnostic))
    for each in chosen:
        texts = [str(each)]
        for rule in each.inactive:
            fault = faults.get((str(each.entity), rule))
            texts.append(f"  {rule}: {f'skipped: {fault}' if fault else 'not triggered'}")
        yield from (f"  {line}" for text in texts for line in text.splitlines())


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


# Arguments and texts


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
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds above 0, such as 15")
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


def _print(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
