"""Bounds of sizes, so that no sum over a table can overflow 64-bit columns; and of names."""

from typing import Annotated

from msgspec import Meta

MAX_SIZE = 2**40
"""Upper bound of any single size (MiB, GiB or vCPUs): a thousand times the largest machine."""

Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Percent = Annotated[float, Meta(ge=0, le=1_000_000)]
CpuNumber = Annotated[int, Meta(ge=0, le=65_535)]
