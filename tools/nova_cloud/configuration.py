"""The configuration files of the control plane, without Keystone.

The API believes what the caller's headers say, Placement that whoever has the token "admin" is the
administrator. Nova's own defaults stand wherever they work on one machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.workers import write_config

Groups = Mapping[str, Mapping[str, Any]]

PASTE = """\
[composite:osapi_compute]
use = call:nova.api.openstack.urlmap:urlmap_factory
/v2.1: api

[pipeline:api]
# Nova's own but for authtoken, which would ask Keystone who is calling.
pipeline = faultwrap sizelimit keystonecontext app

[filter:faultwrap]
paste.filter_factory = nova.api.openstack:FaultWrapper.factory

[filter:sizelimit]
paste.filter_factory = oslo_middleware:RequestBodySizeLimiter.factory

[filter:keystonecontext]
paste.filter_factory = nova.api.auth:NovaKeystoneContext.factory

[app:app]
paste.app_factory = nova.api.openstack.compute:APIRouterV21.factory
"""


@dataclass(frozen=True)
class Endpoints:
    """Where the servers are: URLs."""

    broker: str
    database: str
    placement: str
    stub: str

    def database_of(self, name: str) -> str:
        """The URL of a database, as SQLAlchemy reads it."""
        return f"{self.database.replace('mariadb://', 'mysql+pymysql://')}/{name}?charset=utf8"


class Files:
    """The files in ``directory``; :meth:`write` writes them.

    ``options`` are for all services but the computes, beside those that they need.
    """

    def __init__(self, directory: Path, options: Groups | None = None) -> None:
        self.directory = directory
        self._options = options or {}

    @property
    def nova(self) -> Path:
        """That of all services but the computes."""
        return self.directory / "nova.conf"

    @property
    def compute(self) -> Path:
        """That of all computes: they must not know the databases."""
        return self.directory / "nova-compute.conf"

    @property
    def paste(self) -> Path:
        return self.directory / "api-paste.ini"

    @property
    def placement(self) -> Path:
        return self.directory / "placement.conf"

    def write(self, endpoints: Endpoints) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        common = _common(endpoints, self.directory)
        write_config(self.compute, **common)
        services = {**common, **_databases(endpoints), **_services(self.paste)}
        for group, options in self._options.items():
            services[group] = {**services.get(group, {}), **options}
        write_config(self.nova, **services)
        write_config(self.placement, **_placement(endpoints))
        self.paste.write_text(PASTE)


def worker_groups(host: str, redis: str, port: int) -> Groups:
    """What a worker needs beside the nova.conf of the cloud; ``port`` is that of its metrics."""
    return {
        "DEFAULT": {"host": host},
        "state": {"url": redis},
        "monitoring": {"port": port},
        "nova_feed": {"enabled": True},
        "nova_claims": {"enabled": True},
    }


def dry_run_groups(host: str, port: int) -> Groups:
    """What a dry run needs beside that nova.conf; ``port`` is that of its metrics."""
    return {
        "DEFAULT": {"host": host},
        "monitoring": {"port": port},
        "nova_feed": {"enabled": True},
        "dry_run": {"enabled": True},
    }


def _common(endpoints: Endpoints, directory: Path) -> Groups:
    def client(url: str) -> Mapping[str, str]:
        token = {"auth_type": "admin_token", "token": "admin"}
        return {**token, "endpoint": url, "endpoint_override": url}

    return {
        "DEFAULT": {
            "transport_url": endpoints.broker,
            "state_path": directory,
            "my_ip": "127.0.0.1",
            "graceful_shutdown_timeout": 5,
        },
        "oslo_concurrency": {"lock_path": directory / "locks"},
        "oslo_messaging_notifications": {"driver": "noop"},
        "placement": client(endpoints.placement),
        "neutron": client(endpoints.stub),
        "glance": {"endpoint_override": endpoints.stub},
        "vnc": {"enabled": False},
    }


def _databases(endpoints: Endpoints) -> Groups:
    return {
        "api_database": {"connection": endpoints.database_of("nova_api")},
        "database": {"connection": endpoints.database_of("nova")},
    }


def _services(paste: Path) -> Groups:
    return {
        "api": {"auth_strategy": "keystone"},
        "wsgi": {"api_paste_config": paste},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1},
        "quota": {"driver": "nova.quota.NoopQuotaDriver"},
    }


def _placement(endpoints: Endpoints) -> Groups:
    return {
        "api": {"auth_strategy": "noauth2"},
        "placement_database": {"connection": endpoints.database_of("placement")},
        # A repeated write looks for room in the snapshot of the first one, and finds too much.
        "placement": {"allocation_conflict_retry_count": 1},
    }
