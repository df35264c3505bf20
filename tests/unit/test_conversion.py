"""Types are prepared one at a time; msgspec does not see to that itself."""

from typing import Annotated, Any
from unittest.mock import Mock

import msgspec
import pytest

from scheduler_worker import conversion
from scheduler_worker.conversion import convert, json_reader


class Made(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda kind: json_reader(kind)('{"number": 5}'), Made),
        (lambda kind: convert({"number": 5}, kind), Made),
        (lambda kind: convert("5", kind, strict=False), Annotated[int, msgspec.Meta(extra={})]),
    ],
    ids=["JSON", "plain values", "an annotation without a hash"],
)
def test_a_type_is_prepared_under_a_lock(monkeypatch, use, kind):
    held: list[bool] = []

    def prepare(*_: Any, **__: Any) -> None:
        held.append(conversion._PREPARING._is_owned())  # type: ignore[attr-defined]

    for owner, name in ((msgspec.json, "Decoder"), (msgspec, "convert")):
        real = getattr(owner, name)
        noted = Mock(side_effect=lambda *what, real=real, **how: prepare() or real(*what, **how))
        monkeypatch.setattr(owner, name, noted)
    conversion._reader.cache_clear()
    assert use(kind) in (Made(5), 5)
    assert held[0] is True
