"""How a field of a struct is declared as an option of the configuration.

    interval_s: Annotated[float, Opt(min=0.5, max=60)] = 2.0
    '''Seconds between two looks at what has changed.'''

The annotation says whether and how operators may set the field, the default is the option's, and
the string behind the field its help text. ``conf/`` makes options of them; nothing here depends on
how that is done.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

Form = Literal["", "host", "port", "multi", "ratios"]
"""A special form of the value: an address or name of a host, a port, an option that may be given
several times, a list of ``name=number`` of which other items are left out, as Nova does."""


class Opt(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a field an option; the type, the default and the help text are the field's."""

    min: float | None = None
    max: float | None = None
    choices: Mapping[str, str] | Collection[str] = ()
    """The permitted values, with their meaning; else the values of a ``Literal``."""
    regex: str | None = None
    form: Form = ""
    name: str | None = None
    """None: the name of the field, without ``_s`` for seconds and ``_mb``."""
    group: str | None = None
    """None: that of the struct's other options."""
    former: str | None = None
    """A former ``name``, or ``group.name``."""
    secret: bool = False
    mutable: bool = False
    """Whether a reload takes a new value over."""
    sample_default: str | None = None
    """The default as documents show it, where it depends on the host."""
    help: str | None = None
    """None: the string behind the field."""


def texts(kind: type) -> dict[str, str]:
    """The strings behind the fields of a class, by field. Reads the source of its module."""
    module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    by_field = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for field, text in itertools.pairwise(node.body):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=said)),
                    ):
                        by_field[name] = " ".join(str(said).split())
    return by_field
