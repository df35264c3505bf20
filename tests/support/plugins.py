"""A filter as somebody would bring it from Nova: one host at a time, limits left behind."""

from scheduler_worker.scheduling.plugin import Filter


class EvenHostsFilter(Filter):
    """Hosts whose name ends with an even digit."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits["vcpu"] = 3.7
        return int(host_state.host[-1]) % 2 == 0
