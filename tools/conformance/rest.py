"""The REST API in this process: the installed units over a book of policies of its own."""

import base64
import secrets
from typing import Any

from msgspec import structs
from werkzeug.test import Client

from scheduler_worker import conf as configuration
from scheduler_worker.api.application import Application
from scheduler_worker.api.bind import V1
from scheduler_worker.api.ovirt import OvirtApi
from scheduler_worker.api.presentation import cluster_id
from scheduler_worker.api.rates import RateLimits
from scheduler_worker.api.sessions import Sessions
from scheduler_worker.api.users import new_user
from scheduler_worker.backends.settings import PolicyStoreSettings
from scheduler_worker.compose.parts import Parts
from scheduler_worker.operations.callers import Grant
from scheduler_worker.operations.rights import Rights
from scheduler_worker.service.policies.api_tokens import SharedApiTokens

CLUSTER = "Default"
_USER = "admin@internal"


class Rest:
    """An API with an administrator and one cluster; what it stores ends with it."""

    def __init__(self, archive: str = "") -> None:
        """``archive`` is the URL of a database that has a copy of policies."""
        settings = structs.replace(
            configuration.settings(configuration.load([])),
            default_cluster=CLUSTER,
            policy_store=PolicyStoreSettings(connection=archive),
        )
        self.parts = parts = Parts(settings)
        self.administration, clock = parts.administration, parts.clock
        self.administration.register_units()
        password = secrets.token_urlsafe()
        users = {_USER: new_user(_USER, password, (Grant("administrator"),))}
        sessions = Sessions(lambda: users, SharedApiTokens(parts.state), clock, token_ttl_s=3600)
        api = OvirtApi(self.administration, Rights(), lambda: [CLUSTER], clock)
        nothing: Any = None
        v1 = V1([], nothing, nothing)
        self.client = Client(Application(api, v1, sessions, rates=RateLimits(clock)))
        pair = base64.b64encode(f"{_USER}:{password}".encode()).decode()
        self.credentials = {"Authorization": f"Basic {pair}"}
        self.cluster_id = cluster_id(CLUSTER)

    def close(self) -> None:
        """Close what is open."""
        self.parts.close()

    def __enter__(self) -> "Rest":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
