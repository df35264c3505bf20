"""Loading: texts to a program, or to everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_worker.tuning.check import check
from scheduler_worker.tuning.document import read
from scheduler_worker.tuning.issues import Issues
from scheduler_worker.tuning.program import Program
from scheduler_worker.tuning.yaml_subset import Source


def load(sources: Iterable[Source]) -> Program:
    """The program of some files together; all rules of a scope have their say.

    Sources have different names. Nothing is kept of a policy that does not load.

    Raises:
        PolicyError: with all issues of all files.
    """
    issues = Issues()
    documents = [read(each, issues) for each in sources]
    return check([each for each in documents if each], issues)
