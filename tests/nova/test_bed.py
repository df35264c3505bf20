"""The test bed itself."""

import pytest
from nova_cloud import cli, schemas
from nova_cloud.cloud import Cloud
from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import Fleet
from nova_cloud.installation import Installation


@pytest.fixture
def broken_cloud(tmp_path, monkeypatch):
    """One whose schemas cannot be made, after its servers have been started."""
    started = []

    def fail(*_):
        started.extend(each.name for each in cloud.services if each.is_running)
        raise CloudFailed("no schemas today")

    monkeypatch.setattr(schemas, "create", fail)
    monkeypatch.setattr(Installation, "ensure", lambda self: self)
    cloud = Cloud(tmp_path / "cloud", Installation(tmp_path / "venv"), Fleet())
    with pytest.raises(CloudFailed, match="no schemas today"):
        cloud.up()
    assert {"MariaDB", "RabbitMQ"} <= set(started)
    return cloud


def test_what_does_not_come_up_is_ended_and_keeps_its_logs(broken_cloud):
    assert [each.name for each in broken_cloud.services if each.is_running] == []
    assert "ready for connections" in broken_cloud.database.log.read_text()


def test_another_process_can_remove_what_is_left(broken_cloud):
    directory = broken_cloud.directory
    broken_cloud.stub.start()
    assert cli.main(["--directory", str(directory), "down", "--wipe"]) == 0
    assert not directory.exists()
    assert not broken_cloud.stub.is_running
