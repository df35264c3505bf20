"""The command line of the conformance runner."""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance import reading, registry

_DESCRIPTION = """\
Run recorded decisions through the production code, and compare.

A FILE has cases as JSON, one per line or in lists, gzip or not. The keys of a case determine its
kind, so kinds may be mixed:

  filter        {filter, config, host, request_spec, expect: {passes, limits?}}
  weigher       {config, hosts, request_spec, weigher_order, per_weigher, expect: {order}}
  schedule      {config, hosts, request_spec, instance_uuids, return_alternates, refused_claims,
                 expect: {selections | NoValidHost, after?: {host: {numa_topology,
                 pci_device_pools}}, ...}}
  extra-spec    {value, req, result}
  json-query    {query, host, result}
  normalize     {list, kw: {minval?, maxval?}, result}
  tuning        {policy_yaml, inputs, elapsed, expected | steps | expected_error}
  ovirt-...     cases about oVirt's units and policies, in files {source, cases: [...]}; those of
                its external scheduler proxy run the recorded classes in real sandboxes
  ovirt-rest    {name, method, path, status, body?, headers?, root?, location?, expect_id?,
                 fault?: {reason?, detail_contains?}}: requests to the REST API, one after the other
  mom           {scenario, expected: [{collected, policy_ok, host, guests, calls}]}

The README.md files in tests/cases explain the fields. Instead of a result a case of Nova's may have
the exception that its code raised ("raises"). Then the worker must reject
the host, or refuse the request with an error of its own; Nova's choice among the other hosts may be
recorded too. These cases are counted separately, and so are the runs in which MOM gave up a whole
cycle ("policy_ok" false): ours leaves out the bad rule alone.
"""
_EPILOG = """\
Each difference is a line: FILE:LINE: KIND: the difference. Then for each kind a line: KIND: N
passed, M failed, K raised there, sane here. Exit status: 0; 1 when a case failed; 2 when a file
or a case could not be read.

  .venv/bin/python tools/conformance tests/cases/nova/*.gz
"""
FAILED = 1
UNREADABLE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases of the files that the arguments name; the exit status."""
    options = argparse.ArgumentParser(
        prog="tools/conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("files", nargs="+", type=Path, metavar="FILE", help="cases")
    options.add_argument("--quiet", action="store_true", help="print only the counts")
    parsed = options.parse_args(argv)
    counts, unreadable = run_all(parsed.files, quiet=parsed.quiet)
    for kind in sorted(counts):
        count = counts[kind]
        raised = f", {count['raised']} raised there, sane here" if count["raised"] else ""
        skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
        print(f"{kind}: {count['passed']} passed, {count['failed']} failed{raised}{skipped}")
    if unreadable:
        return UNREADABLE
    return FAILED if any(count["failed"] for count in counts.values()) else 0


def run_all(files: Iterable[Path], *, quiet: bool) -> tuple[dict[str, Counter[str]], int]:
    """Counts by kind of cases that passed, failed or raised, and the number of unreadable ones."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    unreadable = 0
    for path in files:
        try:
            for document in reading.documents(path):
                unreadable += not _run(document, counts, quiet=quiet)
        except (OSError, reading.Malformed) as error:
            print(error, file=sys.stderr)
            unreadable += 1
    return counts, unreadable


def _run(document: reading.Document, counts: dict[str, Counter[str]], *, quiet: bool) -> bool:
    try:
        outcome = registry.run(document)
    except reading.Malformed as error:
        print(error, file=sys.stderr)
        return False
    how = "failed" if outcome.differences else "raised" if outcome.raised else "passed"
    if outcome.skipped is not None:
        how = "skipped"
        if not quiet:
            print(f"{document.place}: {outcome.kind}: skipped: {outcome.skipped}")
    counts[outcome.kind][how] += 1
    if not quiet:
        for difference in outcome.differences:
            print(f"{document.place}: {outcome.kind}: {difference}")
    return True
