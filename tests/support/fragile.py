"""A filter whose import makes the worker's server fail on the method ``break``."""

from scheduler_worker.rpc.serving.handling import MessageHandler
from scheduler_worker.scheduling.plugin import Filter

_delivered = MessageHandler.delivered


def delivered(self, message):
    if b'\\"break\\"' in message.body:
        raise RuntimeError("a defect")
    _delivered(self, message)


MessageHandler.delivered = delivered


class FragileFilter(Filter):
    def host_passes(self, host_state, spec_obj):
        return True
