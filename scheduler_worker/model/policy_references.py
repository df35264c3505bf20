"""Which policy something was decided by."""

import msgspec


class PolicyReference(msgspec.Struct, frozen=True):
    """Identifies the policy and version that a decision was made under."""

    id: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
