"""The contract of a filter and of a weigher.

A unit has two faces and needs to write only one of them:

* the **column face** looks at all hosts at once: :meth:`Filter.passes`, :meth:`Weigher.weigh`. It
  reads columns (``hosts.free_ram_mb``) and costs microseconds for thousands of hosts. Every
  built-in writes this one.
* the **row face** looks at one host: :meth:`Filter.host_passes`, :meth:`Weigher.weigh_host`. It is
  Nova's signature: a class written for Nova works here unchanged as long as it reads
  :class:`~scheduler_worker.model.hosts.HostState` attributes.

Each face is derived from the other, so that whoever needs a mask or an answer about one host can
always ask. A unit is made once, when the worker starts, with the worker's
:class:`~scheduler_worker.scheduling.options.Options`; it keeps no state between requests, for many
threads use it. It must not change the hosts or the request; ``host_state.limits`` is the one
exception.

Raise :class:`~scheduler_worker.errors.RequestError` for a request that makes no sense. Any other
exception is a defect of the unit: the request is answered with an error and the worker goes on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.normalize import clamp, normalize
from scheduler_worker.scheduling.options import Options


class Unit:
    """What filters and weighers share: a name and the options."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()

    @property
    def name(self) -> str:
        """The name that the configuration and the explanations use."""
        return type(self).__name__

    reads_use: ClassVar[bool] = True
    """False when promises and instances on a host cannot change what is said of it."""

    reads_request: ClassVar[bool] = True
    """False for a unit that looks at nothing of the request, and so needs no :meth:`reads`."""

    def applies(self, spec: RequestSpec) -> bool:
        """False when the request asks for nothing that this unit looks at; saves the work.

        A filter then passes every host, a weigher gives every host the raw value 0.
        """
        return True

    def reads(self, spec: RequestSpec) -> Hashable | None:
        """What of the request this unit looks at; None, the default: it is not told.

        Two requests of which all units read the same get the same verdicts on hosts that did not
        change between them, so the verdicts are kept. A unit that tells must read nothing else:
        no clock (but see :meth:`Filter.lasts_until_s`), no chance, no other host.
        """
        return None


class Filter(Unit):
    """Says which hosts can take the instance. Override ``passes`` or ``host_passes``."""

    run_filter_once_per_request: ClassVar[bool] = False
    """True when placing one instance of a request cannot change the answer for the next."""
    RUN_ON_REBUILD: ClassVar[bool] = False
    """True when a rebuild with a new image must be checked too; others pass every host then."""
    looks_at_rows: ClassVar[bool] = False
    """True for a class that is shown survivors, not all hosts: it is set for those that write the
    row face only, and may be set by those whose column face visits each row."""

    of_one_request: ClassVar[bool] = False
    """True for a quick filter whose verdicts no two requests share, as those about a server group:
    it is asked for each request and laid over what is kept, and needs no :meth:`reads`."""

    runs_on_forced_hosts: ClassVar[bool] = False
    """True for what even an administrator cannot override; told of only where it rejects."""

    limits_of_facts: ClassVar[bool] = False
    """True when :meth:`limits` reads nothing but what the host reports of itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _require_a_face(cls, Filter, "passes", "host_passes")
        cls.looks_at_rows = cls.looks_at_rows or cls.passes is Filter.passes

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        """One boolean per host, in row order."""
        answers = (bool(self.host_passes(host, spec)) for host in hosts.states())
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Whether this one host can take the instance."""
        return bool(self.passes(only(host_state), spec_obj)[0])

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        """The time of ``now_s`` up to which the verdicts hold if no host changes."""
        return float("inf")

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        """Why this host, which did not pass, did not: one clause with the figures."""
        return "does not pass"

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        """Oversubscription limits (``vcpu``, ``memory_mb``, ``disk_gb``) to go with a selection."""
        return {}


class Weigher(Unit):
    """Gives each host a raw value, higher is better. Override ``weigh`` or ``weigh_host``.

    The pipeline normalises raw values to 0..1 over the hosts that are left and multiplies them.
    """

    minval: ClassVar[float | None] = None
    """Lower end of the normalisation, and of raw values; None: the smallest value at hand."""
    maxval: ClassVar[float | None] = None
    """Upper end of the normalisation, and of raw values; None: the largest value at hand."""
    option: ClassVar[str | None] = None
    """The option that holds the multiplier; None: 1.0."""
    aggregate_key: ClassVar[str | None] = None
    """The aggregate metadata key that overrides the multiplier; None: the option's name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _require_a_face(cls, Weigher, "weigh", "weigh_host")

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        """One raw value per host, in row order."""
        raw = (float(self.weigh_host(host, spec)) for host in hosts.states())
        return np.fromiter(raw, "f8", len(hosts))

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        """The raw value of one host. (Nova calls the request ``weight_properties`` here.)"""
        return float(self.weigh(only(host_state), weight_properties)[0])

    def normalized(self, raw: Values) -> Values:
        """Raw values as the pipeline adds them: cut to the bounds, then spread over 0..1."""
        return normalize(clamp(raw, self.minval, self.maxval), self.minval, self.maxval)

    def default_multiplier(self) -> float:
        """The multiplier where no aggregate overrides it."""
        return float(getattr(self.options, self.option)) if self.option else 1.0

    def multiplier(self, hosts: Hosts) -> Values | float:
        """The multiplier of each host: the smallest of its aggregates' values, else the option.

        One number where no aggregate says anything, which is what costs nothing.
        """
        default = self.default_multiplier()
        key = self.aggregate_key or self.option
        if key is None or key not in hosts.metadata_keys:
            return default
        return hosts.aggregate_number(key, default)

    def weight_multiplier(self, host_state: HostState) -> float:
        """The multiplier of one host."""
        key = self.aggregate_key or self.option or ""
        return lowest(raw_values(host_state.aggregates, key), self.default_multiplier(), float)


def only(host_state: HostState) -> Hosts:
    """The one host of a row, as columns."""
    rows: Rows = np.array([host_state.row])
    return host_state.table.take(rows)


def _require_a_face(cls: type, base: type, column: str, row: str) -> None:
    if getattr(cls, column) is getattr(base, column) and getattr(cls, row) is getattr(base, row):
        raise TypeError(f"{cls.__name__} must override {column}() or {row}()")
