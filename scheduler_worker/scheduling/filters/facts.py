"""A filter of what hosts report and are members of: stated once, as the reason against a host."""

from typing import Any

from scheduler_worker.model.hosts import Aggregates, Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class FactFilter(Filter):
    """Passes hosts against which nothing is to be said; answers are kept in derived columns."""

    reads_use = False

    def asked(self, spec: RequestSpec) -> Any:
        """What the request asks for, hashable; nothing: it does not concern this filter."""
        raise NotImplementedError

    def rejection(self, host: HostState, asked: Any) -> str | None:
        """Why a host does not pass, by its facts and aggregates; None: it passes."""
        raise NotImplementedError

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self.asked(spec))

    def reads(self, spec: RequestSpec) -> Any:
        return self.asked(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        asked = self.asked(spec)
        key = type(self), self.parameters, asked
        return hosts.derived(key, lambda host: self.rejection(host, asked) is None, "?")

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return self.rejection(host_state, self.asked(spec_obj)) is None

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return self.rejection(host_state, self.asked(spec)) or super().reason(host_state, spec)


class AggregateFilter(FactFilter):
    """Reads nothing of a host but its aggregates; hosts in the same ones are tested once."""

    run_filter_once_per_request = True

    def refusal(self, aggregates: Aggregates, asked: Any) -> str | None:
        """Why hosts in these aggregates do not pass; None when they do."""
        raise NotImplementedError

    def rejection(self, host: HostState, asked: Any) -> str | None:
        return self.refusal(host.aggregates, asked)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        asked = self.asked(spec)
        return hosts.derived(
            (type(self), self.parameters, asked),
            lambda host: self.rejection(host, asked) is None,
            "?",
            lambda all_: all_.by_aggregates().spread(lambda group: not self.refusal(group, asked)),
        )
