"""The composition root: what fits together, what is refused, what a stop gives back."""

import uuid

import pytest

from scheduler_worker import app, conf
from scheduler_worker.errors import ConfigError
from tests.support.clock import ManualClock
from tests.support.services import host, request
from tests.support.workers import write_config


def build(tmp_path, **groups) -> app.Worker:
    groups.setdefault("DEFAULT", {}).setdefault("transport_url", f"local://{uuid.uuid4().hex}/")
    return app.build(conf.load(["--config-file", str(write_config(tmp_path / "c", **groups))]))


def test_a_stop_gives_back_what_was_not_answered(tmp_path, monkeypatch):
    worker = build(tmp_path)
    monkeypatch.setattr(worker.state, "close", lambda: None)
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h")))
        answered = worker.scheduler.select(request("told"))
        worker.scheduler.answered(answered)
        worker.scheduler.select(request("not told"))
    left = worker.listing.reservations()["reservations"]
    assert [each["instance_uuid"] for each in left] == ["told"]


def test_a_worker_tells_who_waits_and_what_is_promised_in_each_cluster(tmp_path):
    worker = build(tmp_path)
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h")))
        worker.scheduler.select(request("i1"))
        told = worker.describe()["clusters"]["default"]
    assert (told["promises"], told["in_line"], told["waiting_for_pending"]) == (1, 0, 0)
    assert told["token"] is None


def decoded(*hosts):
    from scheduler_worker.rpc import codec

    return codec.decode_host_reports(list(hosts))


def test_several_processes_need_a_state_that_they_can_share(tmp_path):
    config = write_config(tmp_path / "c", state={"url": "memory://"})
    settings = conf.settings(conf.load(["--config-file", str(config)]))
    app.check_processes(settings, 1)
    with pytest.raises(ConfigError, match="--workers 2: processes cannot share"):
        app.check_processes(settings, 2)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:password@host:6379/0",
        "rediss://host:6379/0?ssl_ca_certs=/path/ca.pem",
        "unix:///path",
        "redis+sentinel://host:26379,host2:26379/service/0",
        "rediss+sentinel://user:password@host:26379/service/0",
        "redis+cluster://host:6379,host2:6379",
        "rediss+cluster://user:password@host:6379",
    ],
)
def test_every_way_to_name_redis_is_served(tmp_path, url):
    config = write_config(tmp_path / "c", state={"url": url})
    settings = conf.settings(conf.load(["--config-file", str(config)]))
    state = app.open_state(settings, ManualClock())
    assert state.characteristics.spans_processes
    state.close()


def test_filters_may_be_named_by_path_and_in_novas_spelling(tmp_path):
    worker = build(
        tmp_path,
        filter_scheduler={
            "available_filters": [
                "nova.scheduler.filters.all_filters",
                "tests.support.plugins.EvenHostsFilter",
            ],
            "enabled_filters": "CoreFilter,EvenHostsFilter",
            "weight_classes": "nova.scheduler.weights.all_weighers",
        },
    )
    assert [unit.name for unit in worker.pipeline.filters] == ["CoreFilter", "EvenHostsFilter"]
    assert len(worker.pipeline.weighers) >= 12
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h1"), host("h2")))
        decision = worker.scheduler.select(request("i1"))
        assert decision.selections[0][0].service_host == "h2"
        assert decision.selections[0][0].limits.vcpu == 3, "left behind by the row face"


@pytest.mark.parametrize(
    ("option", "name", "complaint"),
    [
        ("enabled_filters", "RamFiltre", "did you mean RamFilter"),
        ("available_filters", "no.such.Filter", "nothing is known under no.such.Filter"),
        ("available_filters", "pathlib.Path", "is not a Filter"),
        ("weight_classes", "RAMWeigherr", "did you mean RAMWeigher"),
    ],
)
def test_unknown_units_are_named(tmp_path, option, name, complaint):
    with pytest.raises(ConfigError, match=complaint) as refused:
        build(tmp_path, filter_scheduler={option: name})
    assert f"[filter_scheduler] {option}" in str(refused.value)


def test_reload_swaps_the_pipeline_or_leaves_it(tmp_path):
    worker = build(tmp_path, filter_scheduler={"host_subset_size": 1})
    config = tmp_path / "c"
    with worker.running():
        config.write_text(config.read_text().replace("size = 1", "size = 5"))
        worker.reload()
        assert worker.pipeline.options.host_subset_size == 5
        config.write_text(config.read_text().replace("size = 5", "size = 0"))
        worker.reload()
        assert worker.pipeline.options.host_subset_size == 5


def test_reload_reads_tuning_policies_and_alarms_where_they_do_not_load(tmp_path, caplog):
    policy = tmp_path / "p.yaml"
    policy.write_text("scope: Host\nrules: {a: {output: fan.speed, target: 1}}")
    worker = build(tmp_path, tuning={"policy_files": policy})
    with worker.running():
        worker.reload()
        policy.write_text("scope: Host\nrules: {a: {output: fan.speed}}")
        worker.reload()
        told = worker.describe()["tuning"]
        assert worker.missing() == [], "a policy is no reason not to serve"
    assert told["policies"] == {"p": str(policy)}
    assert told["alarms"][0].startswith(f"{policy}:2:9: E_SCHEMA: rules.a: ")
    assert told["alarms"][0] in caplog.text
    assert worker.load().tuning_alarms == 1


def test_novas_control_exchange_is_ours(tmp_path):
    config = write_config(tmp_path / "c", DEFAULT={"control_exchange": "other"})
    assert conf.settings(conf.load(["--config-file", str(config)])).exchange == "other"
