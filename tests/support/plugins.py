"""Filters as others may have written them."""

import logging
import time
from pathlib import Path

import numpy as np

from scheduler_worker.rpc.serving.handling import MessageHandler
from scheduler_worker.scheduling.plugin import Filter

LOG = logging.getLogger("somebody.elses.filter")


class EvenHostsFilter(Filter):
    """As for Nova, host by host, with limits: passes hosts whose name ends with an even digit."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits["vcpu"] = 3.7
        return int(host_state.host[-1]) % 2 == 0


class LeakyFilter(Filter):
    """Raises an error with the value of the hint ``leak``."""

    def host_passes(self, host_state, spec_obj):
        hint = spec_obj.hint("leak")
        if hint is not None:
            LOG.debug("asked for %s", {"auth_token": hint})
            raise RuntimeError(f"no answer from https://admin:{hint}@keystone/ (auth_token={hint})")
        return True


class FragileFilter(Filter):
    """Makes the server of its worker fail on the method ``break``."""

    def __init__(self, context):
        super().__init__(context)
        original = MessageHandler.delivered

        def delivered(self, message):
            if b'\\"break\\"' in message.body:
                raise RuntimeError("a defect")
            original(self, message)

        MessageHandler.delivered = delivered

    def host_passes(self, host_state, spec_obj):
        return True


class SlowFilter(Filter):
    """Passes all hosts, after a while; appends a byte to the file that is named by a hint.

    Decisions of a cluster are serial, so this bounds the throughput of all its workers.
    """

    def passes(self, hosts, spec):
        time.sleep(0.05)
        if count := spec.hint("count"):
            with Path(count).open("ab", buffering=0) as file:
                file.write(b".")
        return np.ones(len(hosts), bool)
