"""A cluster's policy: which filters, weights, selector and balance decide where instances go.

A policy is a value: it names units and how each is used, and holds no code, so it can be stored,
sent and compared. ``scheduling/compiler.py`` compiles it to a pipeline.

Its JSON form has the fields of :class:`ClusterPolicy`; fields with their default are left out::

    {"id": "5f0c...", "name": "packing", "version": 3,
     "filters": [{"unit": "ComputeFilter", "position": "first"}, {"unit": "RamFilter"}],
     "weights": [{"unit": "RAMWeigher", "factor": -1.0}],
     "selector": {"unit": "NormalizedSum", "parameters": {"host_subset_size": "3"}}}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert, json_reader
from scheduler_worker.errors import ClusterPolicyError
from scheduler_worker.model.policy_references import PolicyReference

MAX_UNITS = 200
"""Upper bound of filters, and of weights, in one policy."""
MAX_VERSION = 2**53 - 1
"""Upper bound of a version: every JSON reader can represent it exactly."""

Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,255}\Z")]
ParameterName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]{1,128}\Z")]
MAX_VALUE = 4096
"""Upper bound of a parameter's value, in characters."""
Parameters = Mapping[ParameterName, Annotated[str, Meta(max_length=MAX_VALUE)]]
"""Parameter name -> value, as text; the unit that declares the parameter gives it a type."""
Position = Literal["first", "last", "none"]
"""When a filter is asked: before or after all filters without a position."""


class UnitUse(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One use of a unit. ``name`` distinguishes two uses of the same unit in explanations."""

    unit: Name
    name: Name | None = None
    parameters: Parameters = {}

    @property
    def label(self) -> str:
        """The name of this use in explanations: its own, else the unit's."""
        return self.name or self.unit


class FilterUse(UnitUse, frozen=True, kw_only=True):
    """A filter of the policy, in order."""

    position: Position = "none"


class WeightUse(UnitUse, frozen=True, kw_only=True):
    """A weight of the policy; its scores count ``factor`` times, negative ones against a host."""

    factor: float = 1.0


class BalanceUse(UnitUse, frozen=True, kw_only=True):
    """The balance of the policy."""


class SelectorUse(UnitUse, frozen=True, kw_only=True):
    """How scores become an order of hosts."""


NOVA = "nova"
"""Name and id of the policy that ``[filter_scheduler]`` describes."""
NORMALIZED_SUM = "NormalizedSum"
"""The selector of policies that name none: Nova's."""
DEFAULT_SELECTOR = SelectorUse(unit=NORMALIZED_SUM)


class ClusterPolicy(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How the hosts of a cluster are chosen.

    ``parameters`` are the cluster's own: each is given to every unit that declares a parameter of
    that name and is not given it by its own use.
    """

    id: Name
    name: Name
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)]
    description: Annotated[str, Meta(max_length=4096)] = ""
    filters: Annotated[tuple[FilterUse, ...], Meta(max_length=MAX_UNITS)] = ()
    weights: Annotated[tuple[WeightUse, ...], Meta(max_length=MAX_UNITS)] = ()
    balance: BalanceUse | None = None
    selector: SelectorUse = DEFAULT_SELECTOR
    parameters: Parameters = {}

    @property
    def ordered_filters(self) -> tuple[FilterUse, ...]:
        """The filters in the order in which they are asked: first, without position, last."""
        places = ("first", "none", "last")
        return tuple(sorted(self.filters, key=lambda use: places.index(use.position)))

    @property
    def only_hosts_up(self) -> bool:
        """Whether hosts must be up, whatever the filters are; ``nova`` names one for that."""
        return self.id != NOVA

    @property
    def reference(self) -> PolicyReference:
        """Its id, name and version."""
        return PolicyReference(self.id, self.name, self.version)


_encode = msgspec.json.Encoder(order="deterministic").encode
_read = json_reader(ClusterPolicy)


def write_policy(policy: ClusterPolicy) -> bytes:
    """Encodes the policy as JSON; equal policies give equal bytes."""
    return _encode(_canonical(policy))


def read_policy(text: bytes | str) -> ClusterPolicy:
    """Decodes a policy from JSON.

    Raises ClusterPolicyError: the text is no JSON, or a field is missing, unknown or out of bounds;
    names the field.
    """
    try:
        return _read(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterPolicyError([f"policy: {error}"]) from None


def to_plain(policy: ClusterPolicy) -> dict[str, Any]:
    """The policy's JSON form as built-in values."""
    plain: dict[str, Any] = msgspec.to_builtins(_canonical(policy))
    return plain


def check_bounds(policy: ClusterPolicy) -> None:
    """Check a policy that was made by hand as one that is read. Raises ClusterPolicyError."""
    from_plain(to_plain(policy))


def _canonical(policy: ClusterPolicy) -> ClusterPolicy:
    """The policy with the default selector itself: msgspec leaves out no struct that equals it."""
    if policy.selector == DEFAULT_SELECTOR:
        return structs.replace(policy, selector=DEFAULT_SELECTOR)
    return policy


def from_plain(document: Any) -> ClusterPolicy:
    """The policy of built-in values. Raises ClusterPolicyError, which names the field."""
    try:
        return convert(document, ClusterPolicy)
    except msgspec.ValidationError as error:
        raise ClusterPolicyError([f"policy: {error}"]) from None


class ParameterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that a unit declares."""

    name: str
    type: str
    """`integer`, `number`, `boolean`, `text`, or `list` (texts with commas between)."""
    regex: str | None = None
    """What the text of a value must match as a whole, where the unit declares one."""


class UnitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A unit in one of its kinds."""

    id: str
    name: str
    description: str = ""
    is_enabled: bool = True


class TuningText(msgspec.Struct, frozen=True):
    """The text of a tuning policy."""

    name: str
    text: str
    file: str | None
    """Its source; null: it was set over RPC or REST."""

    @property
    def place(self) -> str:
        """Its source as messages name it."""
        return self.file or f"RPC {self.name}"


class TuningProblem(msgspec.Struct, frozen=True):
    """Why a text could not be read or loaded: the version before stays in force."""

    message: str
    file: str | None
    """Null: the policy was set over RPC or REST."""
    policy: str | None = None
    """Null: the clusters file, or a file that could not be read."""
