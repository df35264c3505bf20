"""Copies of Nova's requests, decoded as requests are, and given to the dry run."""

import logging
from typing import Any

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.rpc.dispatcher import Dispatcher, Message, Result, context_of
from scheduler_worker.rpc.nova import decode_request
from scheduler_worker.service.simulation.dry_run import DryRun

LOG = logging.getLogger(__name__)

_METHOD = "select_destinations"
_ARGUMENTS = ("request_spec", "filter_properties", "spec_obj", "instance_uuids")


class CopiedRequests(Dispatcher):
    """Takes copies of all messages of the topic; only requests for hosts matter.

    What cannot be decided is logged, and nobody is answered.
    """

    def __init__(self, dry_run: DryRun) -> None:
        super().__init__(())
        self._dry_run = dry_run

    async def serve(self, message: Message, **_: Any) -> Result:
        """Decide a copy; never raises."""
        if message.method == _METHOD and message.namespace is None:
            context = context_of(message)
            arguments = message.args if isinstance(message.args, dict) else {}
            try:
                request = decode_request(context, *(arguments.get(name) for name in _ARGUMENTS))
                self._dry_run.take(request)
            except SchedulerWorkerError as error:
                LOG.warning(
                    "Dry run: request %s is not decided here: %s", context.request_id, error
                )
                self._dry_run.leave_out()
            except Exception:
                LOG.exception("Dry run: request %s is left out", context.request_id)
        return Result()
