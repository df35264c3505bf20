"""``[nova]``: how to log in to Keystone and to find Nova's API, as for OpenStack's services.

All options are keystoneauth1's, which the extra ``nova`` installs. They are registered only where
Nova is to be asked, so that other workers do without that library.
"""

from typing import Any

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from oslo_config import cfg

GROUP = "nova"
_USUAL_LOGINS = ("password", "v3applicationcredential")
"""The kinds of log-in whose options the sample shows; others work, too."""
_TIMEOUT_S = 20


def list_opts() -> list[tuple[str, list[Any]]]:
    """The options of the group, for ``oslo-config-generator``."""
    return [(GROUP, _with_login(*_USUAL_LOGINS))]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options; keystoneauth1 registers what a kind of log-in has beside these."""
    conf.register_opts(_with_login(), group=GROUP)
    if section := conf[GROUP].auth_section:
        conf.register_opts(loading.get_auth_common_conf_options(), group=section)


def read(conf: cfg.ConfigOpts) -> list[tuple[str, list[Any]]]:
    """The options that are read in ``conf``: they depend on its kind of log-in."""
    register(conf)
    try:
        return [(GROUP, _with_login(conf[GROUP].auth_type or _USUAL_LOGINS[0]))]
    except keystone_errors.NoMatchingPlugin:
        return list_opts()


def _with_login(*kinds: str) -> list[Any]:
    """The options of every kind of log-in, and of some kinds, each name once."""
    opts = [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    cfg.set_defaults(
        opts, service_type="compute", valid_interfaces=["internal", "public"], timeout=_TIMEOUT_S
    )
    for kind in kinds:
        opts += loading.get_auth_plugin_conf_options(kind)
    return list({opt.dest: opt for opt in reversed(opts)}.values())[::-1]
