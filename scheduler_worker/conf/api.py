"""``[api]``: the REST API and its HTTP server."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.operations.callers import ROLES

GROUP = "api"

OPTS = [
    cfg.HostAddressOpt(
        "address",
        default="127.0.0.1",
        help="Address that the REST API listens on. Set certificate_file before it is reached over "
        "a network: passwords and tokens are sent with requests.",
    ),
    cfg.PortOpt("port", default=8780, help="Port of the REST API; 0: a free one."),
    cfg.IntOpt(
        "threads",
        default=10,
        min=1,
        max=200,
        help="Requests that one process serves at a time; others wait.",
    ),
    cfg.IntOpt(
        "max_body",
        default=1024 * 1024,
        min=1024,
        max=64 * 1024 * 1024,
        help="Bytes of a request's body; a larger one is refused.",
    ),
    cfg.FloatOpt(
        "read_timeout",
        default=10.0,
        min=1.0,
        max=600.0,
        help="Seconds that the headers of a request may take, and its body; that gets one more for "
        "each 16 KiB. Then the connection is closed, as is one that is idle for so long.",
    ),
    cfg.StrOpt(
        "auth",
        default="local",
        choices=[
            ("local", "the users of users_file, by password or by a token that the API gives"),
            ("keystone", "tokens of Keystone in the header X-Auth-Token, and nobody else"),
            ("both", "either; for oVirt's clients beside OpenStack's"),
        ],
        help="Who may log in. For Keystone set [keystone_authtoken], as for other services of "
        "OpenStack, and install scheduler_worker[keystone].",
    ),
    cfg.Opt(
        "keystone_roles",
        type=cfg.types.Dict(cfg.types.String(choices=ROLES)),
        default={"admin": "administrator", "reader": "reader"},
        help="Roles of Keystone and what they mean here: reader, policy_editor or administrator. "
        "Other roles of a token mean nothing.",
    ),
    cfg.StrOpt(
        "users_file",
        default="/etc/scheduler_worker/users.yaml",
        help="The users, with hashed passwords and roles; read again when it changes. "
        "`scheduler-worker-manage user add` edits it.",
    ),
    cfg.StrOpt(
        "policy_file",
        help="oslo.policy rules that replace defaults; docs/rest.md lists them.",
    ),
    cfg.FloatOpt(
        "token_ttl",
        default=28800.0,
        min=1.0,
        max=31_536_000.0,
        help="Seconds after which a token expires.",
    ),
    cfg.StrOpt(
        "certificate_file",
        help="The server's certificate (PEM); with it the API is served over TLS only.",
    ),
    cfg.StrOpt(
        "key_file",
        help="The certificate's private key (PEM); not set: it is in certificate_file.",
    ),
    cfg.StrOpt("chain_file", help="Intermediate certificates (PEM), where there are any."),
    cfg.IntOpt(
        "proxies",
        default=0,
        min=0,
        max=10,
        help="How many reverse proxies are in front of the API. So many values of X-Forwarded-For, "
        "-Proto and -Host are believed; 0: none.",
    ),
    cfg.FloatOpt(
        "requests_per_second",
        default=0.0,
        min=0.0,
        max=10_000.0,
        help="Requests of one user, and of one address, that a process serves per second for long; "
        "others are answered 429. 0: any number.",
    ),
    cfg.IntOpt(
        "burst",
        default=20,
        min=1,
        max=100_000,
        help="Requests that may come at once before requests_per_second limits them.",
    ),
    cfg.BoolOpt(
        "console",
        default=True,
        help="Serve the console, a web front end, at /console.",
    ),
    cfg.FloatOpt(
        "console_idle_timeout",
        default=1800.0,
        min=1.0,
        max=86_400.0,
        help="Seconds after which a session of the console ends that nobody uses. A page that only "
        "refreshes itself is not used.",
    ),
    cfg.FloatOpt(
        "console_session_ttl",
        default=43200.0,
        min=1.0,
        max=31_536_000.0,
        help="Seconds after which a session of the console ends, however much it is used.",
    ),
    cfg.BoolOpt(
        "reuse_port",
        default=False,
        help="Let several API processes of this host listen on the same port; the kernel spreads "
        "connections over them.",
    ),
]


def settings(conf: Any) -> ApiSettings:
    """How the REST API is served."""
    group = conf.api
    return ApiSettings(
        address=group.address,
        port=group.port,
        threads=group.threads,
        max_body=group.max_body,
        auth=group.auth,
        keystone_roles=dict(group.keystone_roles),
        users_file=group.users_file,
        policy_file=group.policy_file,
        token_ttl_s=group.token_ttl,
        certificate_file=group.certificate_file,
        key_file=group.key_file,
        chain_file=group.chain_file,
        proxies=group.proxies,
        reuse_port=group.reuse_port,
        read_timeout_s=group.read_timeout,
        requests_per_second=group.requests_per_second,
        burst=group.burst,
        console=group.console,
        console_idle_timeout_s=group.console_idle_timeout,
        console_session_ttl_s=group.console_session_ttl,
    )
