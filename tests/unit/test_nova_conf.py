"""A copied nova.conf: every scheduler option is used, or warned of as having no effect.

Also ``[nova_feed]`` and ``[nova_claims]``, which need other groups of that file, and the files for
operators that are read after one.
"""

import ast
import json
import logging
from pathlib import Path

import pytest
import yaml

from scheduler_worker import conf
from scheduler_worker.compose import checks
from scheduler_worker.compose.parts import Parts
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.conf import nova_compat
from scheduler_worker.errors import ConfigError
from tests.support.workers import write_config

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "samples" / "nova" / "config_options.json"
NOVAS = {(group, name): rest for group, name, *rest in json.loads(TABLE.read_text())}
OURS = {(group or "DEFAULT", opt.name): opt for group, opts in conf.list_opts() for opt in opts}
UNUSED = {(group, name) for group, names in nova_compat.UNUSED.items() for name in names}
OF_THE_BUS = {("DEFAULT", "transport_url"), ("DEFAULT", "control_exchange")}
OTHER_DEFAULTS = {
    ("DEFAULT", "graceful_shutdown_timeout"),
    ("DEFAULT", "host"),
    ("filter_scheduler", "available_filters"),
    ("filter_scheduler", "enabled_filters"),
    ("filter_scheduler", "weight_classes"),
}

FITTING = {
    "host": "worker-1",
    "transport_url": "local:/",
    "control_exchange": "nova",
    "enabled_filters": "ComputeFilter, ImagePropertiesFilter, IsolatedHostsFilter",
    "available_filters": ["nova.scheduler.filters.all_filters"],
    "weight_classes": "nova.scheduler.weights.all_weighers",
    "image_properties_default_architecture": "x86_64",
    "image_props_weight_setting": "os_distro=2.0",
    "weight_setting": "cpu.percent=-1.0",
    "service_down_time": 90,
    "alias": ['{"name": "gpu"}', '{"name": "nic"}'],
}
PLACEMENT = {"auth_type": "none", "endpoint": "http://127.0.0.1:1"}
BY_TYPE = {"BoolOpt": True, "FloatOpt": 2.5, "StrOpt": "some", "ListOpt": "a, b", "MultiOpt": "x"}


def fitting(name: str, kind: str, least: float | None) -> object:
    """A value that nova.conf may have."""
    if name in FITTING:
        return FITTING[name]
    return 7 + (least or 0) if kind == "IntOpt" else BY_TYPE.get(kind, "some")


@pytest.fixture
def nova_conf(tmp_path):
    """A file that sets every option of the table."""
    groups: dict[str, dict[str, object]] = {}
    for (group, name), (kind, _, least) in NOVAS.items():
        groups.setdefault(group, {})[name] = fitting(name, kind, least)
    return write_config(tmp_path / "nova.conf", **groups)


def load(path):
    return conf.load(["--config-file", str(path)])


@pytest.fixture
def load_groups(tmp_path):
    """Loads a file with these groups."""
    return lambda **groups: load(write_config(tmp_path / "c.conf", **groups))


def test_a_nova_conf_with_every_scheduler_option_starts_the_worker(nova_conf, caplog):
    assert conf.unread(load(nova_conf)) == []
    with caplog.at_level(logging.INFO), build_worker(load(nova_conf)).running() as worker:
        values = worker.settings.options.values
    assert [unit.name for unit in worker.pipelines.nova.filters] == [
        "ComputeFilter",
        "ImagePropertiesFilter",
        "IsolatedHostsFilter",
    ]
    assert (values["host_subset_size"], worker.settings.placement.max_attempts) == (8, 8)
    assert values["isolated_hosts"] == ("a", "b")
    assert values["metrics_weight_setting"] == ("cpu.percent=-1.0",)
    assert worker.pipelines.nova.options.packing_host_numa_cells_allocation_strategy
    assert values["service_down_time_s"] == 90
    for group, name in UNUSED & NOVAS.keys():
        warnings = [each for each in caplog.messages if each.startswith(f"[{group}] {name} ")]
        assert len(warnings) == 1, (group, name)


def test_every_option_of_nova_is_used_or_warned_of():
    assert NOVAS.keys() - OF_THE_BUS <= OURS.keys() | UNUSED
    assert not OURS.keys() & UNUSED


@pytest.mark.parametrize("key", sorted(NOVAS.keys() & OURS.keys()), ids=".".join)
def test_an_option_of_nova_has_its_default_and_accepts_its_values(key):
    kind, default, least = NOVAS[key]
    opt = OURS[key]
    if key not in OTHER_DEFAULTS:
        assert opt.default == ast.literal_eval(default)
    if least is not None:
        assert opt.type.min == least
    opt.type(str(fitting(key[1], kind, least)))


def test_without_options_there_are_no_notices():
    assert conf.notices(conf.load()) == []


def test_resources_that_novas_filters_leave_to_placement_are_warned_of(load_groups):
    assert (
        len(conf.notices(load_groups(filter_scheduler={"enabled_filters": "ComputeFilter"}))) == 3
    )
    enabled = {"enabled_filters": "ComputeFilter, AggregateRamFilter"}
    warnings = " ".join(conf.notices(load_groups(filter_scheduler=enabled)))
    assert "nothing decides vCPUs" in warnings
    assert "add DiskFilter" in warnings
    assert "memory" not in warnings
    claims = {"nova_claims": {"enabled": True}, "placement": PLACEMENT}
    assert conf.notices(load_groups(filter_scheduler=enabled, **claims)) == []


def test_a_host_can_report_before_it_counts_as_down(load_groups):
    found = load_groups(DEFAULT={"service_down_time": 10})
    assert conf.settings(found).options.values["service_down_time_s"] == 25
    [notice] = conf.notices(found)
    assert "service_down_time is taken as 25 s" in notice


@pytest.mark.parametrize(
    ("group", "name", "value", "bound"),
    [
        ("filter_scheduler", "host_subset_size", 0, "greater than or equal to 1"),
        ("filter_scheduler", "ram_weight_multiplier", "nan", "no finite number"),
        ("filter_scheduler", "image_properties_default_architecture", "x68", "Valid values are"),
        ("metrics", "required", "perhaps", "boolean"),
        ("DEFAULT", "cpu_allocation_ratio", -1, "greater than or equal to 0"),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bound(load_groups, group, name, value, bound):
    with pytest.raises(ConfigError) as refused:
        conf.settings(load_groups(**{group: {name: value}}))
    assert str(refused.value).startswith(f"[{group}] {name}: ")
    assert bound in str(refused.value)


def test_all_wrong_values_are_reported_at_once(load_groups):
    wrong = {"host_subset_size": 0, "soft_affinity_weight_multiplier": -1}
    with pytest.raises(ConfigError, match=r"host_subset_size: .*; .*soft_affinity_weight"):
        conf.settings(load_groups(filter_scheduler=wrong))


def test_what_counts_for_oslos_server_alone_is_called_unused(load_groups):
    of_bus = {"rabbit_qos_prefetch_count": 5, "rabbit_stream_fanout": True}
    found = load_groups(oslo_messaging_rabbit=of_bus, rpc={"server": "oslo"})
    assert [each.split()[1] for each in conf.unused(found)] == list(of_bus)
    [notice] = conf.unread(found)
    assert "[rpc] server" in notice


def test_queues_that_are_not_mirrored_are_warned_of(load_groups):
    [notice] = conf.notices(load_groups(oslo_messaging_rabbit={"rabbit_ha_queues": True}))
    assert "rabbit_ha_queues mirrors nothing" in notice


def test_an_item_of_a_list_that_nova_leaves_out_is_left_out_and_named(load_groups):
    loaded = load_groups(
        metrics={"weight_setting": "a=1.o, b=2,"},
        filter_scheduler={"image_props_weight_setting": "os_distro=nan"},
    )
    values = conf.settings(loaded).options.values
    assert values["metrics_weight_setting"] == ("b=2",)
    assert values["image_props_weight_setting"] == ()
    assert [notice.partition(" is left out")[0] for notice in conf.notices(loaded)] == [
        "[filter_scheduler] image_props_weight_setting: 'os_distro=nan'",
        "[metrics] weight_setting: 'a=1.o'",
    ]


def test_with_the_feed_reasons_speak_of_what_is_read(nova_conf):
    found = load(nova_conf)
    before = "\n".join(conf.unused(found))
    found.set_override("enabled", True, group="nova_feed")
    after = "\n".join(conf.unused(found))
    assert "there are no cell databases to read" in before
    assert "there are no cell databases to read" not in after
    assert "nova-manage cell_v2 discover_hosts" in after


def test_an_option_of_novas_may_stand_in_one_of_ours(load_groups):
    connection = "sqlite:///$state_path/${my_ip}/$$x"
    loaded = load_groups(
        DEFAULT={"state_path": "/var/$instances_path", "instances_path": "i", "my_ip": "192.0.2.7"},
        api_database={"connection": connection},
        nova_feed={"enabled": True},
    )
    feed = conf.settings(loaded).nova_feed
    assert feed.databases.api_connection == "sqlite:////var/i/192.0.2.7/$x"
    assert conf.unread(loaded) == []


@pytest.mark.parametrize(
    ("group", "name", "scheme"),
    [
        ("DEFAULT", "transport_url", "rabbit"),
        ("state", "url", "redis"),
        ("policy_store", "connection", "postgresql"),
        ("database", "connection", "mysql"),
    ],
)
def test_no_part_of_a_password_with_a_dollar_is_shown(load_groups, group, name, scheme):
    config = load_groups(**{group: {name: f"{scheme}://user:pa$SECRET@host/0"}})
    problem = next(each for each in checks.refusals(config, embedded=True) if name in each)
    assert problem.startswith(f"[{group}] {name}: a $ in it")
    assert "write $$" in problem
    assert "SECRET" not in problem


def test_the_feed_needs_the_api_database(load_groups):
    with pytest.raises(ConfigError, match=r"needs \[api_database\] connection"):
        conf.settings(load_groups(nova_feed={"enabled": True}))


def test_connections_of_nova_are_taken_and_no_names_of_oslo_db_are_complained_about(load_groups):
    found = load_groups(
        api_database={"connection": "mysql+pymysql://u:p@h/nova_api", "max_pool_size": 50},
        database={"connection": "mysql+pymysql://u:p@h/nova", "slave_connection": "x"},
        nova_feed={"enabled": True, "clusters": "cell"},
    )
    assert conf.unread(found) == []
    assert conf.settings(found).nova_feed is not None


def test_claims_are_off_by_default(load_groups):
    config = load_groups()
    settings = conf.settings(config)
    assert settings.claims is None
    assert settings.options.values["claims_in_placement"] is False
    assert Parts(settings, config).scheduler._claims is None


def test_claims_need_an_account_of_placement_whose_options_are_no_mistakes(load_groups):
    config = load_groups(nova_claims={"enabled": True}, placement=PLACEMENT)
    settings = conf.settings(config)
    assert settings.claims is not None
    assert settings.options.values["claims_in_placement"] is True
    assert (conf.unread(config), conf.unused(config)) == ([], [])
    assert checks.refusals(config, embedded=True) == []
    without = load_groups(nova_claims={"enabled": True})
    [problem] = checks.refusals(without, embedded=True)
    assert problem.startswith("[placement] auth_type: not set")


@pytest.mark.parametrize(
    ("name", "is_dry_run"),
    [
        ("etc/nova_cloud/scheduler_worker.conf", False),
        ("etc/nova_cloud/dry_run.conf", True),
        ("examples/kolla/nova-scheduler.conf", False),
    ],
)
def test_a_worker_understands_a_file_that_is_read_after_a_nova_conf(tmp_path, name, is_dry_run):
    of_nova = write_config(
        tmp_path / "nova.conf",
        DEFAULT={"transport_url": "rabbit://nova:SECRET@broker1:5672/"},
        api_database={"connection": "mysql+pymysql://nova:SECRET@database/nova_api"},
        placement={"auth_type": "password"},
    )
    loaded = conf.load(["--config-file", str(of_nova), "--config-file", str(ROOT / name)])
    settings = conf.settings(loaded)
    assert settings.is_dry_run is is_dry_run
    assert (settings.claims is None) is is_dry_run
    assert settings.nova_feed is not None
    connection = settings.nova_feed.databases.api_connection
    assert "scheduler_worker:SECRET@database/nova_api" in connection
    assert [each for each in conf.unread(loaded) if "[placement]" not in each] == []


def test_kollas_files_are_of_their_kinds():
    kolla = ROOT / "examples" / "kolla"
    container = json.loads((kolla / "config.json").read_text())
    assert {"command", "config_files", "permissions"} == container.keys()
    overrides = yaml.safe_load((kolla / "globals.yml").read_text())
    assert {each.partition("_scheduler")[0] for each in overrides} == {"nova"}
    assert ":9099/readyz" in overrides["nova_scheduler_healthcheck_test"][1]
    assert (kolla / "nova-scheduler").stat().st_mode & 0o111
