"""Runs units of the worker's own form in a sandbox; the runner imports this where a file has any.

The class is the same that an installed package would register. It is told the hosts' facts that it
declares and the request, as plain data, and its columns or rows are asked as in the worker.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.catalogue import UnitKind, declared_parameters, parameter_values
from scheduler_worker.scheduling.external.contract import OwnForm, OwnParameter
from scheduler_worker.scheduling.external.facts import FACTS, SandboxedHosts
from scheduler_worker.scheduling.plugin import Filter, Unit, UnitContext, Weigher
from scheduler_worker.wording import listed

_BASES: Mapping[UnitKind, type[Unit]] = {UnitKind.FILTER: Filter, UnitKind.WEIGHT: Weigher}
_WORKERS_ONLY = (
    (Filter, "limits"),
    (Weigher, "rescaled"),
    (Weigher, "multiplier"),
    (Weigher, "default_multiplier"),
)
"""Methods that the worker would have to ask for besides the answers, and does not."""


def is_unit(kind: type) -> bool:
    """Whether a class of a file is a unit in the worker's form, and not imported from the
    worker.
    """
    return issubclass(kind, Unit) and not kind.is_internal()


def kinds(unit: type[Unit]) -> list[str]:
    """What it is a unit of. Raises TypeError for one that cannot run in a sandbox."""
    kinds = [str(kind) for kind, base in _BASES.items() if issubclass(unit, base)]
    if not kinds:
        raise TypeError(f"{unit.__name__} is no Filter or Weigher; others run in the worker only")
    return kinds


def described(unit: type[Unit]) -> dict[str, Any]:
    """The declaration of a class. Raises TypeError for one that cannot run in a sandbox."""
    name = unit.__name__
    if unit.collaborators:
        raise TypeError(
            f"{name}.collaborators: a unit in a sandbox has none of the worker's objects"
        )
    for base, method in _WORKERS_ONLY:
        if issubclass(unit, base) and getattr(unit, method) is not getattr(base, method):
            raise TypeError(f"{name}.{method}() works in the worker only; install it as a package")
    if unknown := sorted(set(unit.host_facts) - FACTS):
        known = ", ".join(sorted(FACTS))
        raise TypeError(f"{name}.host_facts: there is no {listed(unknown)}; there are {known}")
    parameters = msgspec.to_builtins(declared_parameters(unit.parameters_type))
    form = structs.replace(
        convert(unit, OwnForm, strict=False, from_attributes=True),
        parameters=convert(parameters, tuple[OwnParameter, ...]),
    )
    _warm_up(unit)
    described: dict[str, Any] = msgspec.to_builtins(form)
    return described


def _warm_up(unit: type[Unit]) -> None:
    """Let msgspec learn the types that calls convert: each call is a process that begins here."""
    convert({"flavor": {"memory_mb": 0, "vcpus": 0}}, RequestSpec)
    SandboxedHosts(dict.fromkeys(unit.host_facts, ()), 0, 0.0)
    parameter_values(unit.parameters_type, [])


def answer(unit: type[Unit], asked: Mapping[str, Any]) -> list[Any]:
    """One value for each host, in their order.

    Raises what the class raises, and ValueError for parameters that it refuses.
    """
    parameters = parameter_values(unit.parameters_type, [asked["properties"]])
    made = unit(UnitContext(name=unit.__name__, parameters=parameters))
    spec = convert(asked["spec"], RequestSpec)
    hosts = SandboxedHosts(asked["facts"], len(asked["hosts"]), asked["now_s"])
    is_filter = asked["kind"] == UnitKind.FILTER
    if not made.applies(spec):
        return [is_filter] * len(hosts)
    if isinstance(made, Filter) and is_filter:
        return list(np.asarray(made.passes(hosts, spec)).tolist())
    if not isinstance(made, Weigher):
        raise TypeError(f"{unit.__name__} is no {asked['kind']}")
    raw = np.asarray(made.weigh(hosts, spec), "f8")
    # As in the worker, a score that is no finite number counts as 0; JSON has no NaN either.
    return list(np.where(np.isfinite(raw), raw, 0.0).tolist())
