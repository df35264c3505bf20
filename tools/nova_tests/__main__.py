"""Runs Nova's own unit tests of its scheduler, in which ours answers.

    .venv/bin/python tools/nova_tests
    .venv/bin/python tools/nova_tests --verbose    every test that is not applicable, and why

Nova comes from .venv-nova of the checkout (NOVA_VENV names another place), and is installed if need
be. Ends with 1 if a test fails with our answers, or says why it is not applicable though it is.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from nova_cloud.errors import NotInstalled  # noqa: E402 - the lines above make it importable
from nova_cloud.installation import default_installation  # noqa: E402

from nova_tests.suite import Verdict, run  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/nova_tests",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true")
    verbose = parser.parse_args().verbose
    try:
        verdict = run(default_installation().ensure())
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    _show(verdict, verbose)
    return 1 if verdict.differ or verdict.stale else 0


def _show(verdict: Verdict, verbose: bool) -> None:
    for name, why in verdict.differ.items():
        print(f"differs: {name}\n    {why}")
    for name in verdict.stale:
        print(f"applicable, though not_applicable.toml has it: {name}")
    if verbose:
        for name, reason in verdict.not_applicable.items():
            print(f"not applicable: {name}\n    {reason}")
    agree, others = len(verdict.agree), len(verdict.not_applicable)
    print(f"{verdict.total} tests: {agree} agree, {len(verdict.differ)} differ, "
          f"{others} are not applicable")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
