"""Tokens of OpenStack's Keystone as callers of the API; needs the extra ``keystone``.

keystonemiddleware's ``auth_token`` in front of the application asks Keystone about the token in
``X-Auth-Token`` and describes its user in headers. It lets every request pass: the application
answers those whose token is invalid, in its own form, and other log-ins stay possible.
"""

from collections.abc import Mapping
from typing import Any
from wsgiref.types import WSGIApplication, WSGIEnvironment

from keystoneauth1 import exceptions as keystone_errors
from keystonemiddleware import auth_token
from oslo_config import cfg

from scheduler_worker.api.problems import Refusal
from scheduler_worker.errors import ConfigError
from scheduler_worker.operations.callers import Caller, Role, included
from scheduler_worker.wording import cut

GROUP = "keystone_authtoken"
RETRY_AFTER_S = 5
_PROBLEM = "scheduler_worker.keystone_problem"
"""Key of the environment: why Keystone could not be asked."""
_MAX_NAME = 128
_SCOPES = {
    "user_id": "HTTP_X_USER_ID",
    "system_scope": "HTTP_OPENSTACK_SYSTEM_SCOPE",
    "project_id": "HTTP_X_PROJECT_ID",
    "project_name": "HTTP_X_PROJECT_NAME",
    "domain_id": "HTTP_X_DOMAIN_ID",
}
"""What the rules see of a token, and where the middleware puts it."""


class KeystoneTokens:
    """Finds the callers of requests that have passed :meth:`protect`."""

    def __init__(self, conf: cfg.ConfigOpts, roles: Mapping[str, Role]) -> None:
        """``conf`` has ``[keystone_authtoken]``; ``roles`` maps Keystone's to the worker's."""
        self._conf = conf
        self._roles = roles

    def protect(self, application: WSGIApplication) -> WSGIApplication:
        """The application behind the middleware.

        Raises ConfigError where options are missing or contradict each other.
        """
        try:
            protected = _AuthToken(application, self._conf)
        except (
            keystone_errors.ClientException,
            auth_token.ConfigurationError,
            cfg.Error,
            ValueError,
            OSError,
        ) as error:
            raise ConfigError(f"[{GROUP}]: {error}") from None
        section = self._conf[self._conf[GROUP].auth_section or GROUP]
        missing = [name for name in ("auth_type", "auth_url") if not getattr(section, name, None)]
        if missing:
            raise ConfigError(
                f"[{GROUP}] {' and '.join(missing)}: not set; "
                "the API needs an account of its own to ask Keystone about tokens"
            )
        return protected

    def caller(self, environ: WSGIEnvironment) -> Caller | None:
        """Who the token of a request belongs to; None for a request without a token.

        Raises Refusal: 401 for a token that is not valid, 503 while Keystone cannot be asked.
        """
        if not environ.get("HTTP_X_AUTH_TOKEN"):
            return None
        if _PROBLEM in environ:
            raise Refusal(
                503,
                f"[Keystone cannot be asked about the token: {environ[_PROBLEM]}]",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed":
            raise Refusal(401, "The Keystone token is unknown, expired or revoked; get a new one.")
        values = {name: environ.get(header) for name, header in _SCOPES.items()}
        scope: dict[str, Any] = {name: value for name, value in values.items() if value}
        user, domain = environ.get("HTTP_X_USER_NAME", ""), environ.get("HTTP_X_USER_DOMAIN_NAME")
        scope["user"] = f"{user}@{domain}" if domain else str(user)
        scope["roles"] = included(environ.get("HTTP_X_ROLES", "").split(","), self._roles)
        named = f"{cut(scope['user'], _MAX_NAME)} ({cut(scope.get('user_id', ''), _MAX_NAME)})"
        return Caller(named, (), environ.get("REMOTE_ADDR") or "", scope)


class _AuthToken(auth_token.AuthProtocol):  # type: ignore[misc]
    """The middleware, which lets a request pass also while Keystone cannot be asked."""

    def __init__(self, application: WSGIApplication, conf: cfg.ConfigOpts) -> None:
        for group, opts in auth_token.list_opts():
            conf.register_opts(opts, group=group)
        settings = {"oslo_config_config": conf, "delay_auth_decision": True}
        if not conf[GROUP].memcached_servers:
            # A cache of this process alone would go on to believe in tokens that were revoked.
            settings["token_cache_time"] = -1
        super().__init__(application, settings)
        self._uri = conf[GROUP].www_authenticate_uri

    def process_request(self, request: Any) -> None:
        """Describe the token's user in headers, or why that is not possible."""
        try:
            super().process_request(request)
        except _KeystoneSilent as error:
            request.environ[_PROBLEM] = str(error)

    def process_response(self, response: Any) -> Any:
        """Name Keystone to clients without a valid token, without asking it where it is."""
        if response.status_int == 401 and self._uri:
            response.headers.add("WWW-Authenticate", f'Keystone uri="{self._uri}"')
        return response

    def fetch_token(self, token: str, **kwargs: Any) -> Any:
        """What Keystone says of a token.

        With a delayed decision the middleware takes a token that it could not ask about for an
        invalid one; only the exception behind tells them apart.
        """
        try:
            return super().fetch_token(token, **kwargs)
        except auth_token.InvalidToken as error:
            cause = error.__context__
            if cause is None or isinstance(cause, keystone_errors.NotFound):
                raise
            raise _KeystoneSilent(_reason(cause)) from error
        except (keystone_errors.ClientException, auth_token.ServiceError) as error:
            raise _KeystoneSilent(_reason(error)) from error


class _KeystoneSilent(Exception):
    """Raised while Keystone cannot be asked about a token."""


def _reason(error: BaseException) -> str:
    """Why Keystone was silent, without addresses: callers read it."""
    if isinstance(error, keystone_errors.RequestTimeout | keystone_errors.ConnectTimeout):
        return "it does not answer in time"
    if isinstance(error, keystone_errors.ConnectFailure | keystone_errors.DiscoveryFailure):
        return "it cannot be reached"
    return "it refuses the question; the log of the API says why"
