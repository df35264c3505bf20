"""Settings of the REST API and its HTTP server."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from scheduler_worker.operations.callers import Role
from scheduler_worker.options import Opt


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api]``; times in seconds."""

    address: Annotated[str, Opt(form="host")] = "127.0.0.1"
    """Address that the REST API listens on; `::` is every address of IPv4 and IPv6. Set
    certificate_file before it is reached over a network: passwords and tokens are sent with
    requests."""
    port: Annotated[int, Opt(form="port")] = 8780
    """Port of the REST API; 0: a free one."""
    threads: Annotated[int, Opt(min=1, max=200)] = 10
    """Requests that one process serves at a time; others wait."""
    max_body: Annotated[int, Opt(min=1024, max=64 * 1024 * 1024)] = 1024 * 1024
    """Bytes of a request's body; a larger one is refused."""
    read_timeout_s: Annotated[float, Opt(min=1, max=600)] = 10.0
    """Seconds that the headers of a request may take, and its body; that gets one more for each 16
    KiB. Then the connection is closed, as is one that is idle for so long."""
    connections: Annotated[int, Opt(min=10, max=100_000)] = 500
    """Connections of one process at a time. A further one ends the connection that waits for its
    client for longest. Each needs a file descriptor."""
    connections_per_address: Annotated[int, Opt(min=1, max=100_000)] = 100
    """The same for the connections from one address. It does not hold behind proxies, which
    pass on the connections of all clients."""
    auth: Annotated[
        Literal["local", "keystone", "both"],
        Opt(
            choices={
                "local": "the users of users_file, by password or by a token that the API gives",
                "keystone": "tokens of Keystone in the header X-Auth-Token, and nobody else",
                "both": "either; for oVirt's clients beside OpenStack's",
            }
        ),
    ] = "local"
    """Who may log in. For Keystone set [keystone_authtoken], as for other services of OpenStack,
    and install scheduler_worker[keystone]."""
    keystone_roles: Annotated[Mapping[str, Role], Opt()] = msgspec.field(
        default_factory=lambda: {"admin": "administrator", "reader": "reader"}
    )
    """Roles of Keystone and what they mean here: reader, policy_editor or administrator. Other
    roles of a token mean nothing."""
    users_file: Annotated[str, Opt()] = "/etc/scheduler_worker/users.yaml"
    """The users, with hashed passwords and roles; read again when it changes.
    `scheduler-worker-manage user add` edits it."""
    policy_file: Annotated[str | None, Opt()] = None
    """oslo.policy rules that replace defaults; docs/migrating-from-ovirt.md lists them."""
    token_ttl_s: Annotated[float, Opt(min=1, max=31_536_000)] = 28_800.0
    """Seconds after which a token expires."""
    certificate_file: Annotated[str | None, Opt()] = None
    """The server's certificate (PEM); with it the API is served over TLS only."""
    key_file: Annotated[str | None, Opt()] = None
    """The certificate's private key (PEM); not set: it is in certificate_file."""
    chain_file: Annotated[str | None, Opt()] = None
    """Intermediate certificates (PEM), where there are any."""
    proxies: Annotated[int, Opt(min=0, max=10)] = 0
    """How many reverse proxies are in front of the API. So many values of X-Forwarded-For, -Proto
    and -Host are believed; 0: none."""
    requests_per_second: Annotated[float, Opt(min=0, max=10_000)] = 0.0
    """Requests of one user, and of one address, that a process serves per second for long; others
    are answered 429. 0: any number."""
    burst: Annotated[int, Opt(min=1, max=100_000)] = 20
    """Requests that may come at once before requests_per_second limits them."""
    console: Annotated[bool, Opt()] = True
    """Serve the console, a web front end, at /console."""
    console_idle_timeout_s: Annotated[float, Opt(min=1, max=86_400)] = 1800.0
    """Seconds after which a session of the console ends that nobody uses. A page that only
    refreshes itself is not used."""
    console_session_ttl_s: Annotated[float, Opt(min=1, max=31_536_000)] = 43_200.0
    """Seconds after which a session of the console ends, however much it is used."""
    reuse_port: Annotated[bool, Opt()] = False
    """Let several API processes of this host listen on the same port; the kernel spreads
    connections over them."""
