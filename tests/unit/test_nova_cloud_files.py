"""The files for operators of a Nova cloud: a worker can start with them."""

import json
from pathlib import Path

import pytest
import yaml

from scheduler_worker import conf

ROOT = Path(__file__).resolve().parents[2]
NOVA_CONF = """\
[DEFAULT]
transport_url = rabbit://nova:SECRET@broker1:5672/
[api_database]
connection = mysql+pymysql://nova:SECRET@database/nova_api
[placement]
auth_type = password
"""


@pytest.fixture
def nova_conf(tmp_path) -> Path:
    path = tmp_path / "nova.conf"
    path.write_text(NOVA_CONF)
    return path


@pytest.mark.parametrize(
    ("name", "is_dry_run"),
    [
        ("etc/nova_cloud/scheduler_worker.conf", False),
        ("etc/nova_cloud/dry_run.conf", True),
        ("examples/kolla/nova-scheduler.conf", False),
    ],
)
def test_a_worker_understands_the_file(nova_conf, name, is_dry_run):
    loaded = conf.load(["--config-file", str(nova_conf), "--config-file", str(ROOT / name)])
    settings = conf.settings(loaded)
    assert settings.is_dry_run is is_dry_run
    assert (settings.claims is None) is is_dry_run
    assert settings.nova_feed is not None
    assert (
        "scheduler_worker:SECRET@database/nova_api" in settings.nova_feed.databases.api_connection
    )
    unread = conf.unread(loaded)
    assert [each for each in unread if "[placement]" not in each] == []


def test_kollas_files_are_of_their_kinds():
    kolla = ROOT / "examples" / "kolla"
    container = json.loads((kolla / "config.json").read_text())
    assert {"command", "config_files", "permissions"} == container.keys()
    overrides = yaml.safe_load((kolla / "globals.yml").read_text())
    assert {each.partition("_scheduler")[0] for each in overrides} == {"nova"}
    assert ":9099/readyz" in overrides["nova_scheduler_healthcheck_test"][1]
    assert (kolla / "nova-scheduler").stat().st_mode & 0o111
