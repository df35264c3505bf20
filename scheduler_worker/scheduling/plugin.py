"""The plugin API: base classes of filters, weighers and balances.

A filter or weigher has two methods for the same question and has to override only one of them:

* the **column method** looks at all hosts at once: :meth:`Filter.passes`, :meth:`Weigher.weigh`. It
  reads columns (``hosts.free_ram_mb``) and costs microseconds for thousands of hosts. Every
  built-in unit overrides it.
* the **row method** looks at one host: :meth:`Filter.host_passes`, :meth:`Weigher.weigh_host`. It
  is Nova's signature: a class written for Nova works here unchanged as long as it reads
  :class:`~scheduler_worker.model.hosts.HostState` attributes.

The base classes derive each from the other, so callers use either. A unit is made once for each use
in a policy, with a :class:`UnitContext`. Many threads use it, so it keeps no state between
requests. It must not change the hosts or the request; ``host_state.limits`` is the one exception.

An author writes that method and :meth:`Filter.reason`, and declares parameters. What else a unit
may tell the engine are hints (:class:`UnitHints`, :class:`FilterHints`), which make it quicker.

A balance has one method, :meth:`Balance.plan`, a pure function of the cluster's load. A class may
derive from several of the bases: it is a unit of each kind then.

A unit declares its parameters: :attr:`Unit.parameters_type` is a struct whose fields are the
parameters, with their types, bounds and defaults. A policy may set each of them; else an option of
the same name in ``[filter_scheduler]`` applies. A unit declares the objects of the worker that it
needs in :attr:`Unit.collaborators`.

Raise :class:`~scheduler_worker.errors.RequestError` for an invalid request. Any other exception is
a defect of the unit: the request is answered with an error and the worker goes on.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.cluster_load import BalanceMemory, BalancePlan, ClusterLoad
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec

Collaborator = TypeVar("Collaborator")


class NoParameters(msgspec.Struct, frozen=True):
    """The parameters of a unit that has none."""


class UnitContext(msgspec.Struct, frozen=True, kw_only=True):
    """Name, parameters, factor and collaborators of one use of a unit in a policy."""

    name: str
    parameters: msgspec.Struct
    """An instance of the unit's :attr:`Unit.parameters_type`."""
    factor: float = 1.0
    """By what the scores of a weight are multiplied."""
    collaborators: Mapping[type, Any] = {}


class UnitHints:
    """What the engine may know of a unit, to ask it less often; each default is safe."""

    reads_use: bool = True
    """False when reservations and instances on a host cannot change the unit's answer for it."""

    of_one_request: ClassVar[bool] = False
    """True for a quick filter whose answers no two requests share, such as one about server groups:
    it is asked for each request about all hosts at once, and needs no :meth:`reads`."""

    reads_request: bool = True
    """False for a unit that reads nothing of the request, and so needs no :meth:`reads`."""

    def reads(self, spec: RequestSpec) -> Hashable | None:
        """What this unit reads of the request; None, the default: it does not declare that.

        Two requests of which a unit reads the same get the same answers for hosts that did not
        change between them, so the answers are cached. A unit that declares what it reads must read
        nothing else: no clock (but see :meth:`Filter.lasts_until_s`), nothing random, no other
        host. A unit that declares nothing is asked for each request about every host that the
        others left.
        """
        return None

    @classmethod
    def declares_reads(cls) -> bool:
        """Whether answers can be cached, because the class declares what it reads."""
        return cls.reads is not UnitHints.reads or not cls.reads_request

    host_facts: ClassVar[tuple[str, ...]] = ()
    """What it reads of hosts where it runs in a sandbox, see :data:`~.external.facts.FACTS`: names
    of columns, and of attributes of rows. Inside the worker it may read what it likes."""


class Unit(UnitHints):
    """Base of filters, weighers, balances and selectors: a name, parameters and collaborators."""

    unit_id: ClassVar[str | None] = None
    """A fixed id; None: it is derived from the kind and the name."""
    parameters_type: ClassVar[type[msgspec.Struct]] = NoParameters
    """The parameters: a struct in which every field has a default."""
    default_factor: ClassVar[float] = 1.0
    """A weight's factor in the policy ``nova`` where its option is not set."""
    needs_enabling: ClassVar[bool] = False
    """True for one that policies may use only after an administrator has enabled it."""
    collaborators: ClassVar[tuple[type, ...]] = ()
    """The types of the worker's objects that it needs; see :meth:`collaborator`."""

    def __init__(self, context: UnitContext | None = None) -> None:
        if context is None:
            context = UnitContext(
                name=type(self).__name__,
                parameters=self.parameters_type(),
                factor=self.default_factor,
            )
        self.name = context.name
        """The name of this use of the unit in explanations and errors."""
        self.parameters: Any = context.parameters
        self.context = context

    def collaborator(self, kind: type[Collaborator]) -> Collaborator:
        """The worker's object of a declared type; a new one where the worker has none.

        Raises TypeError: the unit does not declare the type.
        """
        if kind not in self.collaborators:
            raise TypeError(f"{type(self).__name__}.collaborators does not name {kind.__name__}")
        collaborator = self.context.collaborators.get(kind)
        return kind() if collaborator is None else collaborator

    def applies(self, spec: RequestSpec) -> bool:
        """False when the request asks for nothing that concerns this unit, which is skipped then.

        A filter that does not apply passes every host, a weigher gives every host the raw score 0.
        """
        return True

    def note(self) -> str | None:
        """What explanations say of its latest answers, such as why it has none; None: nothing."""
        return None

    @classmethod
    def is_internal(cls) -> bool:
        """Whether it comes with the worker."""
        return cls.__module__.startswith("scheduler_worker.")


class FilterHints(UnitHints):
    """What the engine may know of a filter besides; each default is safe."""

    looks_at_rows: ClassVar[bool] = False
    """True for a class that is asked about the survivors of the filters before it, not all hosts.
    Set for classes that override the row method only; a class whose column method visits each row
    may set it."""

    on_failure: ClassVar[str | None] = None
    """What a call that fails in a sandbox does: all hosts ``pass``, or it must ``refuse`` them;
    None: what ``[external_units]`` says. Inside the worker an exception fails the request."""

    leaves_limits: ClassVar[bool] = False
    """Whether its row method, in Nova's signature, may leave limits on hosts; set for each class.
    Filters of the worker have :meth:`limits`."""

    runs_on_forced_hosts: ClassVar[bool] = False
    """True for a filter that forced hosts do not bypass; diagnoses name it only where it
    rejects."""

    limits_of_facts: ClassVar[bool] = False
    """True when :meth:`limits` reads reported facts of the host only, so selections are cached."""

    momentary: ClassVar[bool] = False
    """True for a filter that refuses hosts for a lack of room, or because they are down: before an
    answer offers fewer hosts for such reasons, they may be looked at again."""

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        """Until which ``now_s`` the answers hold if no host changes; infinity: for ever."""
        return float("inf")

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        """How much each host lacks for the instance, by resource class; 0: it lacks nothing.

        Empty for a filter that compares no amounts of these. A host that passes lacks nothing.
        """
        return {}


class Filter(FilterHints, Unit):
    """Decides which hosts can take the instance. Override ``passes`` or ``host_passes``."""

    run_filter_once_per_request: ClassVar[bool] = False
    """True for a filter that is asked for the first instance of a request only: placing it cannot
    change the answer for the next."""
    RUN_ON_REBUILD: ClassVar[bool] = False
    """True for a filter that is asked for a rebuild with a new image too; others are skipped."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _require_method(cls, Filter, "passes", "host_passes")
        cls.looks_at_rows = cls.looks_at_rows or cls.passes is Filter.passes
        is_asked_by_row = cls.looks_at_rows and cls.host_passes is not Filter.host_passes
        cls.leaves_limits = is_asked_by_row and not cls.is_internal()
        _reset_row_method(cls, Filter, "row_check", "passes", "host_passes")

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        """One boolean per host, in row order."""
        answers = (bool(self.host_passes(host, spec)) for host in hosts.states())
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Whether this one host can take the instance."""
        return bool(self.passes(only(host_state), spec_obj)[0])

    def row_check(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], bool]:
        """:meth:`host_passes` as a function of the row, until rows move or facts of hosts change.

        For hosts of which only the use has changed, which are many. By default it is derived.
        """
        return lambda row: self.host_passes(hosts.state(row), spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        """Why this host did not pass: one clause with the figures."""
        return "does not pass"

    def demand(self, spec: RequestSpec) -> str:
        """What it demands of hosts, to follow "12 of 40 hosts": a verb in the plural, and more."""
        return f"pass {self.name}"

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        """Oversubscription limits (``vcpu``, ``memory_mb``, ``disk_gb``) for the selection."""
        return {}


class Weigher(Unit):
    """Gives each host a raw score, higher is better. Override ``weigh`` or ``weigh_host``.

    A raw score is of one host, whatever the others are. The policy's selector makes raw scores
    comparable (Nova's normalises them to 0..1 over the hosts that are left) and adds them,
    multiplied. A score that is no finite number counts as 0.

    A weight that itself compares the hosts that are left also overrides ``rescaled``.
    """

    minval: float | None = None
    """Lower bound of raw scores and of the normalisation; None: the smallest score at hand."""
    maxval: float | None = None
    """Upper bound of raw scores and of the normalisation; None: the largest score at hand."""
    rescales: bool = False
    """Whether it overrides :meth:`rescaled`; set for every class."""
    lower_is_better: ClassVar[bool] = False
    """True for a cost: its scores are negated before they are compared."""
    option: ClassVar[str | None] = None
    """The option with the factor in the policy ``nova``; None: there is none."""
    aggregate_key: ClassVar[str | None] = None
    """The aggregate metadata key that overrides the factor; None: the option's name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _require_method(cls, Weigher, "weigh", "weigh_host")
        cls.rescales = cls.rescales or cls.rescaled is not Weigher.rescaled
        _reset_row_method(cls, Weigher, "row_score", "weigh", "weigh_host")

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        """One raw score per host, in row order."""
        raw = (float(self.weigh_host(host, spec)) for host in hosts.states())
        return np.fromiter(raw, "f8", len(hosts))

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        """The raw score of one host. (Nova calls the request ``weight_properties`` here.)"""
        return float(self.weigh(only(host_state), weight_properties)[0])

    def row_score(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], float]:
        """:meth:`weigh_host` as a function of the row, as :meth:`Filter.row_check` is."""
        return lambda row: float(self.weigh_host(hosts.state(row), spec))

    def rescaled(self, raw: Values, low: float, high: float, spec: RequestSpec) -> Values:
        """What raw scores count beside the scores of the other hosts that are left; by default the
        same.

        ``low`` and ``high`` are the ends of the raw scores of all hosts that are left. NaN is no
        end, unless all are NaN. Each result must follow from its raw score and both ends, and from
        what :meth:`reads` declares: while the ends stay, only hosts that changed are asked about.
        """
        return raw

    def default_multiplier(self) -> float:
        """The multiplier where no aggregate overrides it: the factor in the policy."""
        return self.context.factor

    def multiplier(self, hosts: Hosts) -> Values | float:
        """The multiplier of each host: the smallest of its aggregates' values, else the factor.

        One number for all hosts, which is cheaper, where no aggregate has a value.
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


class Balance(Unit):
    """Proposes migrations of running VMs, and to switch hosts on or off. Override ``plan``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.plan is Balance.plan:
            raise TypeError(f"{cls.__name__} must override plan()")

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        """What to do about the cluster's load, as of ``now_s``.

        Equal arguments give equal plans. ``memory`` is that of the plan before, with the migrations
        that were begun since (:meth:`.BalanceMemory.with_move`); an empty one the first time. A VM
        that cannot move, or that has just been moved, is not proposed.
        """
        raise NotImplementedError


def only(host_state: HostState) -> Hosts:
    """The one host of a row, in columns."""
    return host_state.table.take(np.array([host_state.row]))


def _reset_row_method(cls: type, base: type, by_row: str, *answers: str) -> None:
    """A class with an answer of its own does not inherit a function of the row for another."""
    own = vars(cls).keys()
    if by_row not in own and not own.isdisjoint(answers):
        setattr(cls, by_row, getattr(base, by_row))


def _require_method(cls: type, base: type, column: str, row: str) -> None:
    if getattr(cls, column) is getattr(base, column) and getattr(cls, row) is getattr(base, row):
        raise TypeError(f"{cls.__name__} must override {column}() or {row}()")
