"""The filter for the architecture, hypervisor and address bits that an image requires."""

import re
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from packaging.version import InvalidVersion, Version

from scheduler_worker.errors import RequestError
from scheduler_worker.model.host_records import HvSpec
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.image_properties import canonical
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling import host_attributes
from scheduler_worker.scheduling.extra_specs import COMPARISONS
from scheduler_worker.scheduling.filters.facts import FactFilter

_KNOWN_ARCHITECTURES = (
    *("alpha", "armv6", "armv7l", "armv7b", "aarch64", "cris", "i686", "ia64", "lm32"),
    *("m68k", "microblaze", "microblazeel", "mips", "mipsel", "mips64", "mips64el"),
    *("openrisc", "parisc", "parisc64", "ppc", "ppcle", "ppc64", "ppc64le", "ppcemb", "s390"),
    *("s390x", "sh4", "sh4eb", "sparc", "sparc64", "unicore32", "x86_64", "xtensa", "xtensaeb"),
)
"""Nova's."""
_KINDS = ("hw_architecture", "img_hv_type", "hw_vm_mode")
"""What the triples of a host stand for."""

_PREDICATE = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*\Z")
_VERSION_PROPERTY = "img_hv_requested_version"
_BITS_PROPERTY = "hw_maxphysaddr_bits"

Predicate = tuple[str, str]


class _Requirements(msgspec.Struct, frozen=True):
    """What an image requires, in canonical names; the key of a derived column."""

    names: tuple[str, ...]
    versions: tuple[Predicate, ...]
    address_bits: int | None


class ArchitectureParameters(msgspec.Struct, frozen=True):
    """The architecture of images that name none; None: any."""

    image_properties_default_architecture: Annotated[
        str | None, Opt(choices=_KNOWN_ARCHITECTURES, mutable=True)
    ] = None
    """The CPU architecture of images that name none, such as x86_64."""


class ImagePropertiesFilter(FactFilter):
    """Passes hosts that support the image's architecture, hypervisor type and VM mode together, and
    meet its hypervisor version and address bits. An image without any of the first three passes.

    Reads: ``supported_instances``, ``hypervisor_version``, ``cpu_info``; the image's
    ``hw_architecture``, ``img_hv_type``, ``hw_vm_mode``, ``img_hv_requested_version``,
    ``hw_maxphysaddr_bits``.
    Options: ``image_properties_default_architecture``.
    Example: image properties ``hw_architecture=aarch64`` and ``img_hv_requested_version=>=6.0``.
    """

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    parameters_type = ArchitectureParameters

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self.asked(spec).names)

    def rejection(self, host: HostState, asked: Any) -> str | None:
        image: _Requirements = asked
        if not image.names:
            return None
        if not any(kind.issuperset(image.names) for kind in _supported(host.supported_instances)):
            return f"supports no instance of {', '.join(image.names)}"
        if image.versions and host.hypervisor_version:
            version = decode_version(host.hypervisor_version)
            if not _meets(version, image.versions):
                bounds = ",".join(sign + bound for sign, bound in image.versions)
                return f"hypervisor version {version} does not meet {bounds}"
        if image.address_bits:
            bits = host_attributes.follow(host, ("cpu_info", "maxphysaddr", "bits"))
            if not isinstance(bits, int) or bits < image.address_bits:
                return f"has {bits} physical address bits, not {image.address_bits}"
        return None

    def asked(self, spec: RequestSpec) -> _Requirements:
        properties = spec.image_properties
        default = self.parameters.image_properties_default_architecture
        values = {"hw_architecture": default} | {
            name: properties[name] for name in _KINDS if properties.get(name)
        }
        return _Requirements(
            tuple(canonical(name, str(values[name])) for name in _KINDS if values.get(name)),
            _predicates(properties.get(_VERSION_PROPERTY)),
            _address_bits(properties.get(_BITS_PROPERTY)),
        )


def _predicates(text: Any) -> tuple[Predicate, ...]:
    """Parses comma-separated comparisons such as ``>=6.0,<9``."""
    if not text:
        return ()
    predicates = []
    for item in str(text).split(","):
        matched = _PREDICATE.match(item)
        sign, bound = matched.groups() if matched else ("", "")
        try:
            Version(bound)
        except InvalidVersion:
            raise RequestError(
                f"spec_obj.image.properties.{_VERSION_PROPERTY}",
                f"{item.strip()[:40]!r} is not a comparison such as '>=6.0'",
            ) from None
        predicates.append((sign, bound))
    return tuple(predicates)


def _address_bits(bits: Any) -> int | None:
    if not bits:
        return None
    try:
        return int(bits)
    except (TypeError, ValueError, OverflowError):
        raise RequestError(
            f"spec_obj.image.properties.{_BITS_PROPERTY}",
            f"{str(bits)[:40]!r} is not a number of bits",
        ) from None


def _meets(version: str, predicates: tuple[Predicate, ...]) -> bool:
    hypervisor = Version(version)
    return all(COMPARISONS[sign](hypervisor, Version(bound)) for sign, bound in predicates)


@lru_cache(maxsize=1024)
def _supported(triples: tuple[HvSpec, ...]) -> tuple[frozenset[str], ...]:
    """The triples as sets of canonical names; a whole cloud has a handful of distinct ones."""
    return tuple(
        frozenset(canonical(kind, name) for kind, name in zip(_KINDS, triple, strict=True) if name)
        for triple in triples
    )


def decode_version(number: int) -> str:
    """The dotted form of a hypervisor version, which is a number in base 1000: 8002002 is 8.2.2."""
    parts: list[str] = []
    while number >= 1000:
        number, part = divmod(number, 1000)
        parts.insert(0, str(part))
    return ".".join([str(number), *parts])
