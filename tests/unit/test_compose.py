"""The composition root: build, start, stop and reload of a worker."""

import logging
import sys
import uuid
from importlib.metadata import EntryPoint

import pytest

from scheduler_worker import codec, conf
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.compose import engines
from scheduler_worker.compose.packages import registered
from scheduler_worker.compose.worker import Worker, build_worker
from scheduler_worker.errors import ConfigError
from scheduler_worker.scheduling.options import ALL_FILTERS
from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions
from scheduler_worker.service.state.presence import ReportedWorkers
from tests.support.clock import ManualClock
from tests.support.patience import eventually
from tests.support.services import host, request, reservations_of
from tests.support.workers import write_config


def build(tmp_path, **groups) -> Worker:
    groups.setdefault("DEFAULT", {}).setdefault("transport_url", f"local://{uuid.uuid4().hex}/")
    return build_worker(conf.load(["--config-file", str(write_config(tmp_path / "c", **groups))]))


def test_a_stop_gives_back_unanswered_reservations(tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryState, "close", lambda _: None)
    worker = build(tmp_path)
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h")))
        answered = worker.scheduler.select(request("answered"))
        worker.scheduler.answered(answered)
        worker.scheduler.select(request("unanswered"))
    left = reservations_of(worker.fleet)
    assert [each["instance_uuid"] for each in left] == ["answered"]


def test_a_drained_worker_says_so_until_it_is_resumed(tmp_path, monkeypatch):
    worker = build(tmp_path)
    wanted = []
    monkeypatch.setattr(worker._server, "take_requests", wanted.append)
    with worker.running():
        assert worker.missing() == []
        holds = {"leases": [], "feed": False, "tuning": [], "balancing": []}
        assert worker.status()["holds"] == holds
        worker.drain(last=True)
        worker.drain(last=True)
        assert "drained" in worker.missing()[0]
        assert "drained" in worker.status()["missing"][0]
        assert b"\nscheduler_drained 1.0\n" in worker.monitor.exposition()[1]
        assert worker.facts.is_drained
        stale = worker.missing()
        worker.resume()
        monkeypatch.setattr(worker.monitor, "last_missing", lambda: stale)
        assert worker.status()["missing"] == []
        assert (worker.missing(), worker.facts.is_drained) == ([], False)
        assert b"\nscheduler_drained 0.0\n" in worker.monitor.exposition()[1]
    assert wanted == [False, False, True]


def test_a_worker_describes_its_clusters_and_reports_how_it_is(tmp_path):
    worker = build(tmp_path)
    worker.vitals._built_s -= 60
    with worker.running():
        workers = ReportedWorkers(worker.state)
        worker.inventory.update_hosts(decoded(host("h")))
        worker.scheduler.select(request("i1"))
        described = worker.vitals.describe()["clusters"]["default"]
        eventually(lambda: any(each.report for each in workers.read()))  # by its thread
        worker.vitals.presence.renew()
        [found] = workers.read()
    counts = {"promises": 1, "in_line": 0, "waiting_for_pending": 0, "token": None}
    assert described.items() >= counts.items()
    assert (found.facts, found.state) == (worker.facts, "serving")
    report = found.report
    assert report.uptime_s >= 60
    assert (report.running, report.missing, report.holds.leases) == (0, (), ())
    assert (report.lately.placed, report.lately.durations.total) == (1, 1)
    [cluster] = report.clusters
    assert (cluster.name, cluster.reservations) == ("default", 1)
    assert (cluster.times.wait.total, cluster.times.hold.total) == (1, 1)


def decoded(*hosts):
    return codec.decode_host_reports(list(hosts))


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:password@host:6379/0",
        "rediss://host:6379/0?ssl_check_hostname=true",
        "unix:///path",
        "redis+sentinel://host:26379,host2:26379/service/0",
        "rediss+sentinel://user:password@host:26379/service/0",
        "redis+cluster://host:6379,host2:6379",
        "rediss+cluster://user:password@host:6379",
    ],
)
def test_every_form_of_a_redis_url_opens_an_engine(tmp_path, url):
    config = write_config(tmp_path / "c", state={"url": url})
    settings = conf.settings(conf.load(["--config-file", str(config)]))
    state = engines.open_state(settings.state, ManualClock())
    assert state.characteristics.spans_processes
    state.close()


@pytest.mark.parametrize(
    ("weights", "count"),
    [
        ("nova.scheduler.weights.all_weighers", 13),
        ("nova.scheduler.weights.ram.RAMWeigher, CPUWeigher", 2),
    ],
)
def test_units_may_be_named_by_path_and_in_novas_spelling(tmp_path, weights, count):
    worker = build(
        tmp_path,
        filter_scheduler={
            "available_filters": [
                "nova.scheduler.filters.core_filter.CoreFilter",
                "tests.support.plugins.EvenHostsFilter",
            ],
            "enabled_filters": "CoreFilter,EvenHostsFilter",
            "weight_classes": weights,
        },
    )
    assert [unit.name for unit in worker.pipelines.nova.filters] == [
        "CoreFilter",
        "EvenHostsFilter",
    ]
    assert len(worker.pipelines.nova.weights) == count
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h1"), host("h2")))
        decision = worker.scheduler.select(request("i1"))
        assert decision.selections[0][0].service_host == "h2"
        assert decision.selections[0][0].limits.vcpu == 3, "set by the filter's method for one host"


def test_a_unit_that_does_not_declare_its_reads_is_warned_of(tmp_path, caplog):
    units = {
        "available_filters": [ALL_FILTERS, "tests.support.plugins.EvenHostsFilter"],
        "enabled_filters": "CoreFilter,EvenHostsFilter,ServerGroupAffinityFilter",
    }
    with caplog.at_level(logging.WARNING), build(tmp_path, filter_scheduler=units).running():
        pass
    found = [each for each in caplog.messages if "does not declare what it reads" in each]
    assert [each.split()[0] for each in found] == ["EvenHostsFilter"]
    assert "docs/writing-a-filter.md" in found[0]


@pytest.mark.parametrize(
    ("option", "name", "complaint"),
    [
        ("enabled_filters", "RamFiltre", "did you mean RamFilter"),
        ("available_filters", "no.such.Filter", "nothing is known under no.such.Filter"),
        ("available_filters", "pathlib.Path", "is not a Filter"),
        ("weight_classes", "RAMWeigherr", "did you mean RAMWeigher"),
        ("weight_classes", "nova.scheduler.weights.ram.RamWeigher", "did you mean RAMWeigher"),
    ],
)
def test_unknown_units_are_named(tmp_path, option, name, complaint):
    with pytest.raises(ConfigError, match=complaint) as refused:
        build(tmp_path, filter_scheduler={option: name})
    assert f"[filter_scheduler] {option}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\nimport no_such_library", r"broken.py, line 2: ModuleNotFoundError: .* 'no_such"),
        ("x = 1\n1 / 0", r"broken.py, line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit('no licence')", r"broken.py, line 1: SystemExit: no licence"),
        ("def (", r"SyntaxError: invalid syntax \(broken.py, line 1\)"),
        ("Filter = 1", r"broken has no class Filter"),
    ],
)
def test_a_class_that_cannot_be_loaded_says_why(tmp_path, monkeypatch, text, complaint):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ConfigError, match=f"available_filters: broken.Filter .*{complaint}"):
        build(tmp_path, filter_scheduler={"available_filters": "broken.Filter"})


def test_a_registered_class_that_cannot_be_loaded_says_why(tmp_path, monkeypatch):
    (tmp_path / "registers.py").write_text("x = 1\nraise SystemExit('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = EntryPoint("Licensed", "registers:Filter", "scheduler_worker.filters")
    monkeypatch.setattr("scheduler_worker.compose.packages.entry_points", lambda group: [broken])
    found: list[str] = []
    assert registered("scheduler_worker.filters", found.append) == {}
    (complaint,) = found
    assert "Licensed = registers:Filter cannot be loaded" in complaint
    assert "registers.py, line 2: SystemExit: no licence" in complaint


def test_reload_swaps_the_pipeline_or_leaves_it(tmp_path):
    worker = build(tmp_path, filter_scheduler={"host_subset_size": 1})
    config = tmp_path / "c"
    with worker.running():
        config.write_text(config.read_text().replace("size = 1", "size = 5"))
        worker.reload()
        assert worker.pipelines.nova.selector.parameters.host_subset_size == 5
        config.write_text(config.read_text().replace("size = 5", "size = 0"))
        worker.reload()
        assert worker.pipelines.nova.selector.parameters.host_subset_size == 5


def _directory(path):
    path.unlink()
    path.mkdir()


def _without_handlers(path):
    (path.parent / "log.conf").write_text("[loggers]\nkeys = root\n[formatters]\nkeys =\n")
    _add(path, f"log_config_append = {path.parent / 'log.conf'}")


def _add(path, line):
    path.write_text(
        f"{path.read_text()}[DEFAULT]\n{line}\n[filter_scheduler]\nhost_subset_size = 7\n"
    )


BROKEN = {
    "emptied": (lambda path: path.write_text(""), "[DEFAULT] transport_url is not set"),
    "a log that cannot be written": (
        lambda path: _add(path, "log_dir = /no/such"),
        "[DEFAULT] log_dir",
    ),
    "a log configuration that cannot be loaded": (_without_handlers, "log_config_append: "),
    "a directory": (_directory, "Is a directory"),
    "not text": (lambda path: path.write_bytes(b"[DEFAULT]\nhost = \xff\n"), "can't decode"),
    "not parsed": (lambda path: path.write_text("[DEFAULT\n"), "Invalid section"),
    "no boolean": (lambda path: path.write_text("[DEFAULT]\ndebug = maybe\n"), "debug"),
    "a bound of what is read at the start only": (
        lambda path: path.write_text("[cluster_lock]\nhold_timeout = 0\n"),
        "[cluster_lock] hold_timeout",
    ),
    "an unknown filter": (
        lambda path: path.write_text(
            "[filter_scheduler]\nhost_subset_size = 7\nenabled_filters = RamFiltre\n"
        ),
        "RamFiltre",
    ),
}


@pytest.mark.parametrize(("break_it", "complaint"), BROKEN.values(), ids=BROKEN)
def test_reload_of_a_broken_file_leaves_everything_as_it_was(
    tmp_path, caplog, capfd, break_it, complaint
):
    worker = build(tmp_path, filter_scheduler={"host_subset_size": 3})
    before = worker.pipelines.nova
    with caplog.at_level(logging.INFO):
        break_it(tmp_path / "c")
        worker.reload()
    assert worker.pipelines.nova is before
    assert worker.parts.conf.filter_scheduler.host_subset_size == 3, "as a dump would show it"
    (found,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert found.startswith("The configuration stays as it was: ")
    assert complaint in found
    assert capfd.readouterr().err == ""


def test_reload_reports_a_missing_file_that_was_found_by_default(tmp_path, caplog, monkeypatch):
    """Without --config-file oslo.config would go on with no file at all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".scheduler_worker").mkdir()
    found = tmp_path / ".scheduler_worker" / "scheduler_worker.conf"
    write_config(found, filter_scheduler={"host_subset_size": 3})
    worker = build_worker(conf.load())
    assert worker.pipelines.nova.selector.parameters.host_subset_size == 3
    found.unlink()
    worker.reload()
    assert worker.pipelines.nova.selector.parameters.host_subset_size == 3
    assert "Failed to find some config files" in caplog.text


def test_reload_reads_tuning_policies_and_reports_those_that_do_not_load(tmp_path, caplog):
    policy = tmp_path / "p.yaml"
    policy.write_text("scope: Host\nrules: {a: {output: fan.speed, target: 1}}")
    worker = build(tmp_path, tuning={"policy_files": policy})
    with worker.running():
        worker.reload()
        policy.write_text("scope: Host\nrules: {a: {output: fan.speed}}")
        worker.reload()
        found = worker.vitals.describe()["tuning"]
        assert worker.missing() == [], "a broken tuning policy does not keep a worker from serving"
    assert found["policies"] == {"p": str(policy)}
    assert found["alarms"][0].startswith(f"{policy}:2:9: E_SCHEMA: rules.a: ")
    assert found["alarms"][0] in caplog.text
    assert worker.vitals.load().tuning_alarms == 1


def test_settings_that_endanger_the_state_are_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(MemoryState, "check", lambda _: ["it may evict reservations"])
    with build(tmp_path).running():
        assert "it may evict reservations" in caplog.messages


def test_decisions_are_kept_until_the_last_one_before_a_stop(tmp_path):
    worker = build(tmp_path)
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h")))
        worker.scheduler.answered(worker.scheduler.select(request("i")))
    log = worker.parts._decision_log
    assert log is not None
    decisions = KeptDecisions(log, lambda: worker.fleet.globals.names)  # the state is closed
    [kept] = decisions.page(DecisionQuery()).decisions
    assert (kept.outline.instances, kept.outline.hosts) == (("i",), ("h",))
    found = decisions.get(kept.id)
    assert [each.host for each in found.details.ranked.hosts] == ["h"]


def test_nothing_is_kept_or_prepared_where_that_is_switched_off(tmp_path):
    worker = build(tmp_path, decisions={"enabled": False})
    assert worker.parts.decisions is None
    with worker.running():
        worker.inventory.update_hosts(decoded(host("h")))
        assert worker.scheduler.select(request("i")).ranked.hosts == ()
