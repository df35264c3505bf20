"""The cases of ``tests/cases/nova``, run by the code of ``tools/conformance``."""

from pathlib import Path

from conformance import nova, reading, registry

__all__ = ["differences", "documents", "nova", "reading", "registry"]

CASES = Path(__file__).resolve().parents[1] / "cases" / "nova"


def documents() -> list[reading.Document]:
    return [each for path in sorted(CASES.glob("*.gz")) for each in reading.documents(path)]


def differences(document: reading.Document) -> list[str]:
    return registry.run(document).differences
