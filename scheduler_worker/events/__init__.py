"""Everything that is counted or timed, each declared once, and what follows from it.

The metrics, the recent figures in the workers' reports, what Health and ``doctor`` say of these,
the table of ``docs/monitoring.md``, the alerts and the board follow from it. Each module declares
the events of an area; all names are imported from here. Texts are Markdown.
"""

from typing import Final

from scheduler_worker.events import (
    api,
    balancing,
    bus,
    kinds,
    nova,
    records,
    requests,
    tuning,
    units,
)
from scheduler_worker.events.api import *  # noqa: F403
from scheduler_worker.events.balancing import *  # noqa: F403
from scheduler_worker.events.bus import *  # noqa: F403
from scheduler_worker.events.kinds import *  # noqa: F403
from scheduler_worker.events.nova import *  # noqa: F403
from scheduler_worker.events.records import *  # noqa: F403
from scheduler_worker.events.requests import *  # noqa: F403
from scheduler_worker.events.tuning import *  # noqa: F403
from scheduler_worker.events.units import *  # noqa: F403

EVENTS: Final = tuple(
    each
    for area in (requests, bus, units, tuning, balancing, nova, records, api)
    for each in vars(area).values()
    if isinstance(each, kinds.Event)
)
"""All of them, in the order of their declaration."""
_OF_REST: Final = (api.API_REQUESTS, api.API_TIME, api.API_LIMITED)
OF_API: Final = (*_OF_REST, api.HTTP_ENDED)
"""Events of a process with the REST API and without a worker."""
OF_WORKER: Final = tuple(
    event for event in EVENTS if event not in _OF_REST and not isinstance(event, kinds.Gauge)
)
"""Events of a worker; its monitor is an HTTP server, too."""
TROUBLES: Final = {trouble.text: trouble for event in EVENTS for trouble in event.troubles.values()}
"""By the text in reports."""
