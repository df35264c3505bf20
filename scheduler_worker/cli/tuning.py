"""``scheduler-workerctl tuning``: checks policies, dry-runs them, and explains their outputs."""

import argparse
import math
import sys
from importlib.resources import files
from pathlib import Path

from scheduler_worker.cli import charts
from scheduler_worker.cli.commands import PlainCommand


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
        from scheduler_worker.cli import tuning_runs

        return tuning_runs.check(parsed_args)


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
        from scheduler_worker.cli import tuning_runs

        tuning_runs.run(parsed_args)


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
        from scheduler_worker.cli import tuning_runs

        tuning_runs.explain(parsed_args)


class Schema(PlainCommand):
    """Print the JSON Schema of policies, for editors that know YAML schemas.

    Save it beside the policies as policy.schema.json and begin them with

      # yaml-language-server: $schema=policy.schema.json
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        schema = files("scheduler_worker.tuning").joinpath("policy.schema.json")
        sys.stdout.write(schema.read_text(encoding="utf-8"))


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
