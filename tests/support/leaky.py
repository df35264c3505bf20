"""A careless filter: it raises an error that contains secrets."""

import logging

from scheduler_worker.scheduling.plugin import Filter

LOG = logging.getLogger("somebody.elses.filter")


class LeakyFilter(Filter):
    """Raises an error with the value of the hint ``leak``."""

    def host_passes(self, host_state, spec_obj):
        hint = spec_obj.hint("leak")
        if hint is not None:
            LOG.debug("asked for %s", {"auth_token": hint})
            raise RuntimeError(f"no answer from https://admin:{hint}@keystone/ (auth_token={hint})")
        return True
