"""The application of the REST API with its parts, over the services of a process."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scheduler_worker.api.application import Application, nobody
from scheduler_worker.api.bind import V1
from scheduler_worker.api.console.console import Console, LogIn
from scheduler_worker.api.console.sessions import ConsoleSessions
from scheduler_worker.api.ovirt import OvirtApi
from scheduler_worker.api.rates import RateLimits
from scheduler_worker.api.sessions import Sessions
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.api.users import Users
from scheduler_worker.observer import Observer
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.access import Access
from scheduler_worker.operations.rights import Rights
from scheduler_worker.operations.services import UseCases
from scheduler_worker.ports import ApiTokens, Clock
from scheduler_worker.service.policies.api_tokens import SharedApiTokens

if TYPE_CHECKING:
    from scheduler_worker.api.keystone import KeystoneTokens


class Api:
    """The application, and who is logged in."""

    def __init__(
        self,
        settings: ApiSettings,
        services: UseCases,
        *,
        users: Callable[[], Users],
        clock: Clock,
        keystone: "KeystoneTokens | None" = None,
        observer: Observer | None = None,
    ) -> None:
        """The services of a process with a store. Raises ConfigError."""
        assert services.store is not None  # noqa: S101
        administration = services.store.administration
        rights = Rights(settings.policy_file)
        tokens = SharedApiTokens(services.fleet.store)
        self.sessions = Sessions(users, tokens, clock, token_ttl_s=settings.token_ttl_s)
        self.console = _console(settings, self.sessions, tokens, rights, clock)
        self.v1 = V1(OPERATIONS, services, Access(rights, administration.audit_log))
        self.application = Application(
            OvirtApi(administration, rights, services.clusters, clock),
            self.v1,
            self.sessions,
            rates=RateLimits(
                clock, requests_per_second=settings.requests_per_second, burst=settings.burst
            ),
            max_body=settings.max_body,
            foreign_caller=nobody if keystone is None else keystone.caller,
            console=self.console,
            observer=observer,
        )


def _console(
    settings: ApiSettings, sessions: Sessions, tokens: ApiTokens, rights: Rights, clock: Clock
) -> Console | None:
    """None: it is switched off."""
    if not settings.console:
        return None
    ways: dict[str, Sequence[LogIn]] = {
        "local": ["password"],
        "keystone": ["keystone"],
        "both": ["password", "keystone"],
    }
    return Console(
        sessions,
        ConsoleSessions(
            sessions,
            tokens,
            clock,
            idle_timeout_s=settings.console_idle_timeout_s,
            ttl_s=settings.console_session_ttl_s,
        ),
        rights,
        ways[settings.auth],
    )
