"""What ``scheduler-workerctl tuning`` does: checks policies, dry-runs and explains them."""

import argparse
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from os.path import commonpath
from pathlib import Path

from scheduler_worker.cli import charts
from scheduler_worker.cli.commands import say
from scheduler_worker.cli.dry_run_files import read_parameters, read_samples, read_text
from scheduler_worker.errors import ConfigError, TuningPolicyError
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.dry_run import dry_run, outputs_over_time, repeated, table
from scheduler_worker.tuning.evaluate import Cycle, Diagnostic
from scheduler_worker.tuning.explain import Explanation, explanations
from scheduler_worker.tuning.issues import MOST_ISSUES
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.yaml_subset import Source


def check(arguments: argparse.Namespace) -> int:
    """``tuning check``; returns the exit status."""
    sources = _sources(arguments.files)
    try:
        program = loader.load(sources)
    except TuningPolicyError as error:
        count = len(error.issues)
        least = "at least " if count >= MOST_ISSUES else ""
        say(str(error), f"{least}{_counted(count, 'issue')} in {_files(sources)}")
        return 1
    outputs = [output for plan in program.plans.values() for output in plan.outputs]
    rules = sum(len(output.rules) for output in outputs)
    say(f"no issues: {_counted(rules, 'rule')} in {_files(sources)}")
    return 0


def run(arguments: argparse.Namespace) -> None:
    """``tuning run``."""
    program, cycles = _dry_run(arguments)
    series = outputs_over_time(cycles)
    if series:
        say(table(cycles, interval_s=arguments.interval))
    say(*_diagnosed(cycles, arguments.interval), *_missing_scopes(program, cycles))
    if arguments.chart == charts.TERMINAL:
        width = shutil.get_terminal_size().columns
        say(*charts.in_terminal(series, interval_s=arguments.interval, width=width))
    elif arguments.chart != charts.NONE:
        charts.in_file(series, interval_s=arguments.interval, path=Path(arguments.chart))


def explain(arguments: argparse.Namespace) -> None:
    """``tuning explain``. Raises ConfigError where nothing was evaluated as asked for."""
    program, cycles = _dry_run(arguments)
    is_found = False
    for number in _cycles_at(arguments.at, arguments.interval, len(cycles)):
        chosen = [
            explanation
            for explanation in explanations(cycles[number])
            if fnmatchcase(str(explanation.entity), arguments.entity)
        ]
        if chosen:
            is_found = True
            say(f"at {number * arguments.interval:g} s:", *_explained(chosen, cycles[number]))
    if not is_found and arguments.entity != "*":
        known = sorted({str(entity) for cycle in cycles for entity in cycle.state.evaluated_at_s})
        raise ConfigError(
            f"--entity: no rule was evaluated for {arguments.entity!r} then; choose one of: "
            f"{', '.join(known)}"
        )
    say(*_missing_scopes(program, cycles))


# Parts of commands


def _sources(paths: Iterable[Path]) -> list[Source]:
    return [Source(str(path), read_text(path)) for path in dict.fromkeys(paths)]


def _program(paths: Sequence[Path]) -> Program:
    """Load the policies; issues name files as given, for editors, and rules have shorter names."""
    sources = _sources(paths)
    loader.load(sources)
    top = commonpath([Path(source.name).absolute().parent for source in sources])
    return loader.load(
        Source(str(Path(source.name).absolute().relative_to(top)), source.text)
        for source in sources
    )


def _dry_run(arguments: argparse.Namespace) -> tuple[Program, list[Cycle]]:
    program = _program(arguments.files)
    parameters = read_parameters(arguments.parameters) if arguments.parameters else {}
    samples = read_samples(arguments.samples, parameters, at_most=charts.MAX_CYCLES)
    cycles = repeated(samples, arguments.cycles or len(samples))
    return program, dry_run(program, cycles, interval_s=arguments.interval)


def _diagnosed(cycles: Sequence[Cycle], interval_s: float) -> Iterator[str]:
    """Yield a line for each rule and kind of diagnostic, whatever the number of entities."""
    faults: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, cycle in enumerate(cycles):
        for diagnostic in cycle.diagnostics:
            entities = faults.setdefault((diagnostic.rule, _fault(diagnostic)), {})
            entities.setdefault(str(diagnostic.entity), []).append(number)
    for (rule, fault), entities in faults.items():
        numbers = sorted({number for in_cycles in entities.values() for number in in_cycles})
        first, *more = entities
        shown = f"{first} and {len(more)} more" if more else first
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
    for explanation in chosen:
        texts = [explanation.text]
        for rule in explanation.inactive:
            fault = faults.get((str(explanation.entity), rule))
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


# Texts


def _files(sources: Sequence[Source]) -> str:
    return _counted(len(sources), "file")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
