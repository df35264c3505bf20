"""A filter as one written for Nova: evaluates one host at a time, and sets its limits."""

from scheduler_worker.scheduling.plugin import Filter


class EvenHostsFilter(Filter):
    """Passes hosts whose name ends with an even digit."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits["vcpu"] = 3.7
        return int(host_state.host[-1]) % 2 == 0
