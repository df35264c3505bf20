"""What classes in the form of oVirt's external scheduler declare and answer; checked here.

Nothing that comes out of a sandbox is believed: a value of another type than the contract says, or
a host that was not asked about, makes the whole answer useless.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from scheduler_worker.conversion import convert
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.external.facts import FACTS
from scheduler_worker.wording import cut

T = TypeVar("T")

_MOST_PARAMETERS = 50
_Identifier = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
_Description = Annotated[str, msgspec.Meta(max_length=4000)]
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


OnFailure = Literal["pass", "refuse"]
"""Whether all hosts pass a filter that fails, or none."""
ON_FAILURE: OnFailure = "pass"


class OwnParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a class of the worker's own form."""

    name: _Identifier
    type: Literal["integer", "number", "boolean", "text", "list"]
    default: str | int | float | bool | tuple[str, ...] | None = None
    regex: str | None = None
    bounds: dict[Literal["ge", "gt", "le", "lt"], int | float] = {}


class OwnForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a class of the worker's own form declares: the class attributes of these names."""

    host_facts: tuple[str, ...] = ()
    """The host facts that it is told, all of them among :data:`~.facts.FACTS`."""
    parameters: tuple[OwnParameter, ...] = ()
    lower_is_better: bool = False
    minval: float | None = None
    maxval: float | None = None
    aggregate_key: str | None = None
    run_filter_once_per_request: bool = False
    RUN_ON_REBUILD: bool = False
    runs_on_forced_hosts: bool = False


class PluginClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of a file, as one kind of unit."""

    file: str
    """The name of the file, without its directory."""
    name: str
    kind: UnitKind
    description: str = ""
    parameters: Mapping[str, str] = {}
    """Name -> regular expression that a value must match as a whole."""
    on_failure: OnFailure | None = None
    """What a filter declares for calls that fail; None: the option of that name holds."""
    own: OwnForm | None = None
    """What a class of the worker's own form declares; None: its form is oVirt's."""

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies it among the classes of all files."""
        return self.file, self.name, self.kind


class PluginFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the directory, as it was loaded."""

    name: str
    classes: tuple[PluginClass, ...] = ()
    problem: str | None = None
    """Why it cannot be used."""


class _Declared(msgspec.Struct, frozen=True):
    name: _Identifier
    kinds: dict[Literal["filter", "weight", "balance"], _Description]
    validation: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    on_failure: str = ""
    own: OwnForm | None = None


def plugin_classes(file: str, declared: object) -> list[PluginClass]:
    """The units of a file, one for each kind of each class.

    Raises ValueError: a declaration is invalid; names the class.
    """
    return [
        PluginClass(
            file=file,
            name=declaration.name,
            kind=UnitKind(kind),
            description=" ".join(description.split()),
            parameters=_parameters(declaration),
            on_failure=_on_failure(declaration),
            own=_checked(declaration),
        )
        for declaration in _typed(declared, list[_Declared])
        for kind, description in declaration.kinds.items()
    ]


def _on_failure(declared: _Declared) -> OnFailure | None:
    """Raises ValueError."""
    said = declared.on_failure
    if said not in {"", "pass", "refuse"}:
        raise ValueError(f"{declared.name}.on_failure is {cut(said)!r}, not pass or refuse")
    on_failure: OnFailure | None = convert(said or None, OnFailure | None)
    return on_failure


def _parameters(declared: _Declared) -> dict[str, str]:
    """Reads ``name=regex;name=regex``. Raises ValueError."""
    parameters: dict[str, str] = {}
    for item in filter(None, map(str.strip, declared.validation.split(";"))):
        name, _, regex = item.partition("=")
        where = f"{declared.name}.properties_validation, {cut(name)!r}"
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f"{where}: a name consists of letters, digits and _")
        try:
            re.compile(regex)
        except re.error as error:
            raise ValueError(f"{where}: {cut(regex)!r} is no regular expression: {error}") from None
        parameters[name] = regex
    if len(parameters) > _MOST_PARAMETERS:
        raise ValueError(f"{declared.name} declares more than {_MOST_PARAMETERS} parameters")
    return parameters


def _checked(declared: _Declared) -> OwnForm | None:
    """Raises ValueError where what it declares is unknown, or no worker could use it."""
    form = declared.own
    if form is None:
        return None
    if unknown := sorted(set(form.host_facts) - FACTS):
        raise ValueError(f"{declared.name}.host_facts: there is no {cut(unknown[0])!r}")
    if len(form.parameters) > _MOST_PARAMETERS:
        raise ValueError(f"{declared.name} declares more than {_MOST_PARAMETERS} parameters")
    for parameter in form.parameters:
        try:
            re.compile(parameter.regex or "")
        except re.error as error:
            where = f"{declared.name}, parameter {parameter.name}"
            raise ValueError(f"{where}: {cut(parameter.regex or '')!r}: {error}") from None
    return form


def read_passes(answer: object, hosts: Collection[str]) -> list[bool]:
    """Whether each host passes, in order. Raises ValueError."""
    return _for_each(_typed(answer, list[bool]), hosts)


def read_raw(answer: object, hosts: Collection[str]) -> list[float]:
    """The raw score of each host, in order. Raises ValueError."""
    return _for_each(_typed(answer, list[float]), hosts)


def _for_each(answers: list[T], hosts: Collection[str]) -> list[T]:
    if len(answers) != len(hosts):
        raise ValueError(f"it has {len(answers)} values for {len(hosts)} hosts")
    return answers


def read_filter(answer: object, hosts: Collection[str]) -> frozenset[str]:
    """The ids of the hosts that are left. Raises ValueError."""
    kept = frozenset(_typed(answer, list[str]))
    _check_known(kept, hosts)
    return kept


def read_scores(answer: object, hosts: Collection[str]) -> dict[str, int]:
    """Host id -> score, rounded; the lower the better. Raises ValueError."""
    rows = _typed(answer, list[tuple[str, float]])
    _check_known({host for host, _ in rows}, hosts)
    if not all(math.isfinite(score) for _, score in rows):
        raise ValueError("a score is no finite number")
    return {host: round(score) for host, score in rows}


def read_balance(answer: object, hosts: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
    """The id of a VM and the ids of the hosts that it may move to; None: nothing is to move.

    Raises ValueError.
    """
    if answer in ([], None):
        return None
    vm, destinations = _typed(answer, tuple[str, tuple[str, ...]])
    _check_known(destinations, hosts)
    return (vm, destinations) if vm and destinations else None


def _typed(answer: object, kind: type[T]) -> T:
    try:
        return convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ValueError(cut(str(error))) from None


def _check_known(named: Collection[Any], hosts: Collection[str]) -> None:
    known = frozenset(hosts)
    if unknown := sorted(name for name in named if name not in known):
        raise ValueError(f"it names {cut(unknown[0])!r}, which is none of the hosts it was asked")
