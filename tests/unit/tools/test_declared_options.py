"""An option's default that is written a second time is found."""

from pathlib import Path

import pytest
from declared.options import repeated_defaults

OPTION = """
class Settings(Struct):
    prefix: Annotated[str, Opt(regex="x")] = "books"
    enabled: Annotated[bool, Opt()] = False
    timeout_s: Annotated[float, Opt()] = 60.0


class Others(Struct):
    timeout_s: Annotated[float, Opt()] = 2.0
"""


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('def open(prefix="books"): ...', True),
        ('def open(*, prefix: str = "books"): ...', True),
        ('class Shelf:\n    prefix: str = "books"', True),
        ('def open(prefix="papers"): ...', False),
        ("def open(prefix=PREFIX): ...", False),
        ("def open(prefix): ...", False),
        ("def open(enabled=False): ...", False),
        ("def open(timeout_s=60.0): ...", False),
    ],
)
def test_a_default_that_is_written_twice_is_found(tmp_path: Path, text: str, is_found: bool):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/settings.py").write_text(OPTION)
    (tmp_path / "package/other.py").write_text(text)
    complaints = list(repeated_defaults(tmp_path, "package"))
    assert [each.partition(":")[0] for each in complaints] == ["package/other.py"] * is_found
