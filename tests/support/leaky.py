"""A filter that somebody wrote carelessly: it breaks, and says what it should not."""

import logging

from scheduler_worker.scheduling.plugin import Filter

LOG = logging.getLogger("somebody.elses.filter")


class LeakyFilter(Filter):
    """Breaks where the request has a hint ``leak``, and tells the hint."""

    def host_passes(self, host_state, spec_obj):
        told = spec_obj.hint("leak")
        if told is not None:
            LOG.debug("asked for %s", {"auth_token": told})
            raise RuntimeError(f"no answer from https://admin:{told}@keystone/ (auth_token={told})")
        return True
