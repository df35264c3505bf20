"""Settings of Nova's databases."""

from __future__ import annotations

import msgspec


class NovaDatabasesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api_database]``, ``[database]`` and the timeouts of ``[nova_feed]``; times in seconds.

    URLs may contain passwords; messages name databases without them.
    """

    api_connection: str
    """The API database."""
    local_connection: str | None = None
    """``[database] connection``, which fills templates in cell mappings."""
    connection_parameters: str = ""
    """Added to the query of the API database's URL, as ``a=b&c=d``."""
    recycle_s: int = 3600
    """After how long an idle connection is replaced."""
    image_properties: bool = False
    """Whether those of instances are read, too."""
    one_statement: bool = False
    """Whether each reading is one statement, which needs no transaction."""
    connect_timeout_s: float = 5.0
    statement_timeout_s: float = 30.0
