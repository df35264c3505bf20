"""Builds a process that serves the REST API: beside the workers, or with a worker inside.

::

    with api_process.build(conf.load(["--config-file", path])).running() as api:
        print(api.url)
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from scheduler_worker import app, factories
from scheduler_worker import conf as configuration
from scheduler_worker.api.server import tls_of
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api_process.process import ApiProcess, users
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.sandbox.pool import Sandboxes
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.errors import ConfigError
from scheduler_worker.extras import needing_extra
from scheduler_worker.operations.rights import Rights
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.trust import Trust
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies

if TYPE_CHECKING:
    from scheduler_worker.api.keystone import KeystoneTokens

__all__ = ["ApiProcess", "build", "build_embedded", "refusals"]


class _Compiled:
    """The compiled policies of a process without a worker."""

    def __init__(
        self, settings: Settings, trust: Trust | None, sandboxes: Sandboxes | None
    ) -> None:
        """Raises as :func:`.factories.compile_pipelines` does."""
        self._compile = partial(factories.compile_pipelines, settings.options, trust, sandboxes)
        self._sandboxes = sandboxes
        self.pipelines = self._compile()

    def refresh(self) -> None:
        """Compile again if files of external units have changed."""
        if self._sandboxes is not None and self._sandboxes.has_changed():
            self.pipelines = self._compile()


def _keystone(conf: Configuration, settings: ApiSettings) -> "KeystoneTokens | None":
    """Raises ConfigError where Keystone is to be asked and its library is missing."""
    if settings.auth == "local":
        return None
    with needing_extra("keystone", f"[api] auth = {settings.auth}"):
        from scheduler_worker.api.keystone import KeystoneTokens
    return KeystoneTokens(conf, settings.keystone_roles)


def refusals(conf: Configuration) -> Iterator[str]:
    """Each option of ``[api]`` with which no process would start here. Opens no connection."""
    settings = configuration.settings(conf).api
    for attempt in (
        lambda: tls_of(settings),
        lambda: users(settings),
        lambda: Rights(settings.policy_file),
        lambda: _keystone(conf, settings),
    ):
        try:
            attempt()
        except ConfigError as error:
            yield str(error)


def build(conf: Configuration) -> ApiProcess:
    """Build an API process beside the workers; it is not started.

    Raises:
        ConfigError: options that contradict each other, or a state that workers cannot share.
        BackendError: the policy store cannot be reached.
    """
    settings = configuration.settings(conf)
    clock = SystemClock()
    state = WatchedState(factories.open_state(settings.state, clock), clock)
    with contextlib.ExitStack() as opened:
        closing = opened.enter_context(contextlib.ExitStack())
        closing.callback(state.close)
        if not state.characteristics.spans_processes:
            raise ConfigError(
                "[state] url is memory://, which no worker can share; use redis://, or --embedded "
                "for a worker inside this process"
            )
        fleet = Fleet(state, default_cluster=settings.default_cluster)
        trust = factories.build_trust(settings, fleet, clock)
        sandboxes = factories.build_sandboxes(settings)
        kept = factories.open_decision_history(settings, fleet, clock)
        for part in (sandboxes, kept):
            if part is not None:
                closing.callback(part.close)
        compiled = _Compiled(settings, trust, sandboxes)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        services = factories.build_services(
            fleet,
            lambda: compiled.pipelines,
            down_after_s=settings.tuning.silent_after_s,
            scheduler=Scheduler(
                fleet=fleet,
                lock=state,
                pipelines=lambda: compiled.pipelines,
                clock=clock,
                limits=settings.placement,
            ),
            inventory=factories.build_inventory(settings, fleet),
            tuning=TuningPolicies(state, factories.policy_files(settings.tuning)),
            balancing=factories.build_balancing(settings, fleet, lambda: compiled.pipelines),
            decisions=kept,
        )
        process = ApiProcess(
            settings,
            services=services,
            pipelines=lambda: compiled.pipelines,
            store=store,
            state=state,
            clock=clock,
            close=closing.close,
            keystone=_keystone(conf, settings.api),
            trust=trust,
            refresh_units=compiled.refresh,
        )
        opened.pop_all()
        return process


def build_embedded(conf: Configuration) -> ApiProcess:
    """Build a worker with the API in one process; raises as :func:`build` and ``app.build``."""
    settings = configuration.settings(conf)
    clock = SystemClock()
    worker = app.build(conf, clock=clock)
    with contextlib.ExitStack() as opened:
        opened.callback(worker.stop)
        store = factories.open_policy_store(settings.policy_store)
        opened.callback(store.close)
        process = ApiProcess(
            settings,
            services=worker.services,
            pipelines=lambda: worker.pipelines,
            store=store,
            state=worker.state,
            clock=clock,
            close=worker.state.close,
            keystone=_keystone(conf, settings.api),
            worker=worker,
        )
        opened.pop_all()
        return process
