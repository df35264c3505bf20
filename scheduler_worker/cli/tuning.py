"""``scheduler-workerctl tuning``: checks policies, dry-runs them, and explains their outputs."""

import argparse
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.resources import files
from os.path import commonpath
from pathlib import Path
from typing import Any

from scheduler_worker.cli import charts
from scheduler_worker.cli.commands import PlainCommand, say
from scheduler_worker.cli.files import read_text, read_yaml
from scheduler_worker.cli.progress import doing
from scheduler_worker.errors import ConfigError, TuningPolicyError
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.tuning.statistics import sample_of
from scheduler_worker.tuning import loader
from scheduler_worker.tuning.dry_run import (
    OutputExplanation,
    dry_run,
    explanations,
    outputs_over_time,
    repeated,
    table,
)
from scheduler_worker.tuning.evaluate import Cycle, Diagnostic
from scheduler_worker.tuning.issues import MOST_ISSUES
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.samples import Sample, Value
from scheduler_worker.tuning.yaml_subset import Source

_HOST = "host"
"""The name of the sampled host."""
_LEVELS = {"load": 1, "vms": 2, "cycles": 0}
"""Key of a sample -> the levels of mappings that its value must have."""


class _OfPolicies(PlainCommand):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="+", type=Path, metavar="FILE", help="a policy; several are combined"
        )


class Check(_OfPolicies):
    """Report all issues of policies, each with its place and a caret.

      policy.yaml:6:5: E_SCHEMA: rules.half.functio: 'functio' is not known here; did you mean ...
            functio: constant
            ^

    The files are checked together, as they would be loaded. Nothing is evaluated. Exit status 1 if
    there is any issue.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        sources = _sources(parsed_args.files)
        try:
            program = loader.load(sources)
        except TuningPolicyError as error:
            count = len(error.issues)
            least = "at least " if count >= MOST_ISSUES else ""
            say(*str(error).split("\n"), f"{least}{_counted(count, 'issue')} in {_files(sources)}")
            return 1
        outputs = [output for plan in program.plans.values() for output in plan.outputs]
        rules = sum(len(output.rules) for output in outputs)
        say(f"no issues: {_counted(rules, 'rule')} in {_files(sources)}")
        return 0


class _DryRun(_OfPolicies):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--samples", required=True, type=Path, metavar="FILE", help="what the host reports"
        )
        parser.add_argument(
            "--parameters",
            type=Path,
            metavar="FILE",
            help="names and values that rules see under 'policy', as an operator sets them for a "
            "cluster; fields of 'policy' in a sample take precedence",
        )
        parser.add_argument(
            "--cycles",
            type=_count,
            metavar="N",
            help="number of cycles; default: the cycles of the samples",
        )
        parser.add_argument(
            "--interval",
            type=_interval,
            default=15.0,
            metavar="SECONDS",
            help="the time from one cycle to the next; default: 15",
        )


class Run(_DryRun):
    """Dry-run policies over samples of a host: a table and a chart.

    They are evaluated cycle by cycle, with a simulated agent that sets all outputs. Prints each
    output after each cycle, what could not be evaluated, and a chart.

    A minimal file of samples:

      samples:
        - load: {mem_free: 1000, mem_available: 16000}    # what the host reports of itself
          vms:
            web: {cpu: {max_load: 100}, io: {read_bytes_per_s: 900}}
          cycles: 5                                       # the number of cycles
        - vms: {web: {io: {read_bytes_per_s: 0}}}         # all else stays the same

    The last sample is repeated as long as needed. See docs/scheduler-workerctl.md.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--chart",
            type=_chart,
            default=charts.TERMINAL,
            metavar="WHERE",
            help="'terminal' (default), 'none', or a FILE.png or FILE.svg, which needs "
            "the extra scheduler_worker[chart]",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        program, cycles = _dry_run(parsed_args)
        series = outputs_over_time(cycles)
        if series:
            say(*table(cycles, interval_s=parsed_args.interval))
        say(*_diagnosed(cycles, parsed_args.interval), *_missing_scopes(program, cycles))
        if parsed_args.chart == charts.TERMINAL:
            width = shutil.get_terminal_size().columns
            say(*charts.in_terminal(series, interval_s=parsed_args.interval, width=width))
        elif parsed_args.chart != charts.NONE:
            charts.in_file(series, interval_s=parsed_args.interval, path=Path(parsed_args.chart))


class ExplainTuning(_DryRun):
    """Explain the values of outputs, which `tuning run` prints.

    For each cycle, entity and output: which rules voted, their weights and targets, what limited or
    held back their votes, and which rules did not vote and why.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--at", type=_seconds, metavar="SECONDS", help="only the cycle then")
        parser.add_argument(
            "--entity",
            default="*",
            metavar="NAME",
            help="only this entity: 'host', a VM's name, VM/DISK, or a shell pattern of these",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        program, cycles = _dry_run(parsed_args)
        entity, interval_s, is_found = parsed_args.entity, parsed_args.interval, False
        for number in _cycles_at(parsed_args.at, interval_s, len(cycles)):
            found = explanations(cycles[number])
            chosen = [each for each in found if fnmatchcase(str(each.entity), entity)]
            if chosen:
                is_found = True
                say(f"at {number * interval_s:g} s:", *_explained(chosen, cycles[number]))
        if not is_found and entity != "*":
            known = {str(known) for cycle in cycles for known in cycle.state.evaluated_at_s}
            raise ConfigError(
                f"--entity: no rule was evaluated for {entity!r} then; choose one of: "
                f"{', '.join(sorted(known))}"
            )
        say(*_missing_scopes(program, cycles))


class Schema(PlainCommand):
    """Print the JSON Schema of policies, for editors that know YAML schemas.

    Save it beside the policies as policy.schema.json and begin them with

      # yaml-language-server: $schema=policy.schema.json
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        schema = files("scheduler_worker.tuning").joinpath("policy.schema.json")
        sys.stdout.write(schema.read_text(encoding="utf-8"))


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
    with doing("evaluating the policies"):
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


def _explained(chosen: Iterable[OutputExplanation], cycle: Cycle) -> Iterator[str]:
    faults: dict[tuple[str, str], str] = {}
    for diagnostic in cycle.diagnostics:
        faults.setdefault((str(diagnostic.entity), diagnostic.rule), _fault(diagnostic))
    for explanation in chosen:
        texts = [explanation.text]
        for rule in explanation.inactive:
            fault = faults.get((str(explanation.entity), rule))
            texts.append(f"  {rule}: {f'skipped: {fault}' if fault else 'not triggered'}")
        yield from (f"  {line}" for text in texts for line in text.split("\n"))


def _cycles_at(at_s: float | None, interval_s: float, count: int) -> Sequence[int]:
    if at_s is None:
        return range(count)
    number = round(at_s / interval_s)
    if number >= count or not math.isclose(number * interval_s, at_s):
        last_s = (count - 1) * interval_s
        cycles = f"they are every {interval_s:g} s from 0 to {last_s:g}"
        raise ConfigError(f"--at: no cycle is at {at_s:g} s; {cycles}")
    return [number]


def _files(sources: Sequence[Source]) -> str:
    return _counted(len(sources), "file")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# Arguments


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= charts.MAX_CYCLES:
        most = charts.MAX_CYCLES
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 to {most}")
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
    if text in {charts.TERMINAL, charts.NONE} or Path(text).suffix in charts.SUFFIXES:
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r}: write {charts.TERMINAL}, {charts.NONE}, or a file that ends in "
        f"{' or '.join(charts.SUFFIXES)}"
    )


# Files of samples and parameters


def read_parameters(path: Path) -> dict[str, Value]:
    """Return the parameters that rules see under ``policy``, by name. Raises ConfigError."""
    parameters = read_yaml(path)
    if parameters is None:
        return {}
    _expect_mapping(parameters, f"{path}: ", "names and values, such as 'io_threshold: 500'")
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float | str | None):
            expected = f"write a number, true, false or a text, not {_shown(value)}"
            raise ConfigError(f"{path}: {name}: {expected}")
    return {name: value for name, value in parameters.items() if value is not None}


def read_samples(path: Path, parameters: Mapping[str, Value], *, at_most: int) -> list[Sample]:
    """Return a sample for each cycle that a file describes, ``at_most`` this many.

    Raises ConfigError, which names the entry.
    """
    document = read_yaml(path)
    _expect_mapping(document, f"{path}: ", "'samples:' and a list")
    entries = document.pop("samples", None)
    if document:
        raise ConfigError(f"{path}: {_unknown(next(iter(document)), ['samples'])}")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: samples: write a list with an entry for each change")
    samples: list[Sample] = []
    report: Any = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: sample {number}"
        cycles = _check_entry(entry, where)
        if len(samples) + cycles > at_most:
            raise ConfigError(f"{where}.cycles: the file has more than {at_most} cycles")
        try:
            report = _patched(report, entry)
        except RecursionError as error:
            raise ConfigError(f"{where}: is nested too deeply, or contains itself") from error
        samples += [_sample(report, parameters)] * cycles
    return samples


def _sample(report: Mapping[str, Any], parameters: Mapping[str, Value]) -> Sample:
    record = HostRecord(
        uuid=_HOST,
        host=_HOST,
        nodename=_HOST,
        cluster="",
        reported_at_s=0.0,
        vcpus=0,
        memory_mb=0,
        local_gb=0,
        load=report.get("load", {}),
        vms={name: {"name": name} | vm for name, vm in report.get("vms", {}).items()},
    )
    return sample_of(record, parameters, record.vms)


def _patched(before: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): mappings are merged, null deletes."""
    if not isinstance(patch, dict):
        return patch
    patched = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            patched.pop(key, None)
        else:
            patched[key] = _patched(patched.get(key), value)
    return patched


def _check_entry(entry: Any, where: str) -> int:
    """Check that an entry has the shape of a report; return its number of cycles."""
    _expect_mapping(entry, f"{where}: ", "'load:', 'vms:' and 'cycles:', as far as they change")
    for key, value in entry.items():
        if key not in _LEVELS:
            raise ConfigError(f"{where}: {_unknown(key, _LEVELS)}")
        _check_levels(value, f"{where}.{key}", _LEVELS[key])
    for name, vm in (entry.get("vms") or {}).items():
        _check_levels((vm or {}).get("disks"), f"{where}.vms.{name}.disks", 2)
    cycles = entry.get("cycles", 1)
    if type(cycles) is not int or cycles < 1:
        raise ConfigError(f"{where}.cycles: write a whole number above 0, not {cycles!r}")
    return cycles


def _check_levels(value: Any, where: str, levels: int) -> None:
    if value is None or not levels:
        return
    _expect_mapping(value, f"{where}: ", "names and their values")
    for name, inner in value.items():
        _check_levels(inner, f"{where}.{name}", levels - 1)


def _expect_mapping(value: Any, where: str, what: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}write a mapping of {what}, not {_shown(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{where}write the name {key!r} in quotes; names are texts")


def _unknown(key: str, known: Any) -> str:
    close = get_close_matches(key, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return f"{key!r} is not known here; {hint}"


def _shown(value: Any) -> str:
    shown = repr(value)
    return "nothing" if value is None else shown if len(shown) <= 60 else f"{shown[:57]}..."
