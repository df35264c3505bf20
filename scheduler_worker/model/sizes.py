"""MostOf of sizes, so that no sum over a table can overflow 64-bit columns; and of requests.

The work of a decision grows with what its request holds, times the hosts. The bounds are far above
what clouds use, and keep the dearest request of 1,000 hosts within seconds.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_SIZE = 2**40
"""Upper bound of any single size (MiB, GiB or vCPUs): a thousand times the largest machine."""

Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=255)]
"""A name that may be empty, or a value of an extra spec: as long as Nova's API takes it."""
LongText = Annotated[str, Meta(max_length=4096)]
"""A scheduler hint, or an address."""
Percent = Annotated[float, Meta(ge=0, le=1_000_000)]
CpuNumber = Annotated[int, Meta(ge=0, le=65_535)]

MAX_TRAITS = 128
Traits = Annotated[tuple[Text, ...], Meta(max_length=MAX_TRAITS)]
MAX_GROUPS = 64
"""Groups of resources beside the flavor's: ports and devices."""
MAX_AGGREGATES = 1000
Aggregates = Annotated[tuple[Text, ...], Meta(max_length=MAX_AGGREGATES)]
MAX_CELLS = 128
"""NUMA cells of an instance."""
MAX_PCI_REQUESTS = 128


class MostOf(msgspec.Struct, frozen=True):
    """How much a message may hold."""

    values: int
    """In all."""
    names: int
    """In one mapping: extra specs, image properties, hints."""
    elements: int
    """In one list: hosts, instances, members of a group."""


OF_REQUEST = MostOf(values=25_000, names=256, elements=10_000)
OF_REPORT = MostOf(values=1_000_000, names=1_000_000, elements=1_000_000)
"""Of one host."""
