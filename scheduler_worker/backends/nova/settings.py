"""Settings of Nova's databases."""

from typing import Annotated

import msgspec

from scheduler_worker.options import Opt


class NovaDatabasesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api_database]``, ``[database]`` and the timeouts of ``[nova_feed]``; times in seconds.

    URLs may contain passwords; messages name databases without them.
    """

    api_connection: Annotated[str, Opt(group="api_database", name="connection", secret=True)]
    """Nova's API database, as in nova.conf. Only read, and only with [nova_feed] enabled: a
    read-only account suffices."""
    local_connection: Annotated[
        str | None, Opt(group="database", name="connection", secret=True)
    ] = None
    """A cell's database, as in nova.conf. It is not connected to: its parts fill the templates in
    cell mappings, such as {scheme}://{username}:{password}@{hostname}/cell1."""
    connection_parameters: Annotated[str, Opt(group="api_database", secret=True)] = ""
    """Added to the query of that URL, as a=b&c=d."""
    recycle_s: Annotated[int, Opt(group="api_database", name="connection_recycle_time", min=-1)] = (
        3600
    )
    """Seconds after which an idle connection to any of Nova's databases is replaced."""
    image_properties: Annotated[bool, Opt()] = False
    """Whether the properties of the images that instances were made from are read, too, which
    ImagePropertiesWeigher compares: some ten more rows for each instance."""
    one_statement: bool = False
    """Whether each reading is one statement, which needs no transaction."""
    connect_timeout_s: Annotated[float, Opt(min=1, max=600)] = 5.0
    """Seconds to wait for a new connection to a database."""
    statement_timeout_s: Annotated[float, Opt(min=1, max=600)] = 30.0
    """Seconds that a statement may take."""
