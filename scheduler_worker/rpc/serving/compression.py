"""Decompresses bodies that senders compressed as kombu does; never to more than is allowed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

_GZIP, _BZ2, _LZMA = "application/x-gzip", "application/x-bz2", "application/x-lzma"
_NAMES = {"gzip": _GZIP, "zlib": _GZIP, "bzip2": _BZ2, "bzip": _BZ2, "lzma": _LZMA, "xz": _LZMA}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    _GZIP: zlib.decompressobj,
    _BZ2: bz2.BZ2Decompressor,
    _LZMA: lzma.LZMADecompressor,
}


class DecompressionError(Exception):
    """Raised for a body that cannot be decompressed, or is too large; the message says why."""


def decompressed(body: bytes, compression: object, max_bytes: int) -> bytes:
    """The decompressed body; the same body without ``compression``.

    Raises NotDecompressedError.
    """
    if not compression:
        return body
    make = (
        _DECOMPRESSORS.get(_NAMES.get(compression, compression))
        if isinstance(compression, str)
        else None
    )
    if make is None:
        raise DecompressionError(
            f"its header compression is {compression!r:.40}; known are {', '.join(sorted(_NAMES))}"
        )
    stream = make()
    try:
        plain: bytes = stream.decompress(body, max_bytes + 1)
    except Exception as error:  # each library raises its own
        raise DecompressionError(f"it cannot be decompressed: {error}") from None
    if len(plain) > max_bytes:
        raise DecompressionError(
            f"it has more than {max_bytes} bytes when decompressed; [rpc] max_message_bytes allows "
            "no more"
        )
    if not stream.eof:
        raise DecompressionError("it cannot be decompressed: its end is missing")
    return plain
