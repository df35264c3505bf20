"""Unknown options and groups are reported with the nearest name; Nova's own are ignored."""

from pathlib import Path

import pytest

from scheduler_worker import conf
from scheduler_worker.backends.nova import options as nova_options
from scheduler_worker.conf import nova_compat
from scheduler_worker.rpc import transport
from tests.support.workers import write_config

SAMPLE = Path(__file__).resolve().parents[2] / "etc/scheduler_worker/scheduler_worker.conf.sample"


def warnings(tmp_path, **groups):
    path = write_config(tmp_path / "c", **groups)
    loaded = conf.load(["--config-file", str(path)])
    return [each.removeprefix(f"{path}: ") for each in conf.unread(loaded)]


@pytest.mark.parametrize(
    ("group", "option", "sentence"),
    [
        ("DEFAULT", "transport_ulr", "[DEFAULT] transport_ulr is no option that is read; did you "
                                     "mean transport_url?"),
        ("DEFAULT", "hold_timeout", "[DEFAULT] hold_timeout is no option that is read; it belongs "
                                    "to [cluster_lock]"),
        ("DEFAULT", "zzz", "[DEFAULT] zzz is no option that is read"),
        ("Pending", "tll", "[Pending] tll is no option that is read; did you mean ttl?"),
        ("filter_schedular", "x", "[filter_schedular] is no group that is read; did you mean "
                                  "[filter_scheduler]?"),
        ("default", "x", "[default] is no group that is read; did you mean [DEFAULT]?"),
        ("oslo_messaging_rabit", "x", "[oslo_messaging_rabit] is no group that is read; did you "
                                      "mean [oslo_messaging_rabbit]?"),
        ("oslo_messaging_rabbit", "sssl", "[oslo_messaging_rabbit] sssl is no option that is "
                                          "read; did you mean ssl? Nova reads this group, too: "
                                          "change it for all services at once"),
        ("DEFAULT", "scheduler_default_filters", "[DEFAULT] scheduler_default_filters is no option "
                                                 "that is read; it is enabled_filters in "
                                                 "[filter_scheduler] now"),
        ("DEFAULT", "metrics_weight_setting", "[DEFAULT] metrics_weight_setting is no option that "
                                              "is read; it is weight_setting in [metrics] now"),
        ("DEFAULT", "--scheduler_default_filters",
                    "[DEFAULT] --scheduler_default_filters is no option that is read; it is "
                    "enabled_filters in [filter_scheduler] now"),
        ("pending", "--ttl", "[pending] --ttl is no option that is read; it is ttl"),
        ("scheduler", "query_placement_for_availability_zone",
                      "[scheduler] query_placement_for_availability_zone is no option that is "
                      "read; zones of requests always count"),
        ("scheduler", "query_placement_for_traits_in_extra_specs",
                      "[scheduler] query_placement_for_traits_in_extra_specs is no option that is "
                      "read; traits in extra specs are always required"),
        ("nova_feed", "placement_refresh", "[nova_feed] placement_refresh is no option that is "
                                           "read; hosts are read when they change"),
        ("zzz", "x", "[zzz] is no group that is read"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_reported(tmp_path, group, option, sentence):
    assert warnings(tmp_path, **{group: {option: "x"}}) == [sentence]


@pytest.mark.parametrize(
    ("group", "option"),
    [
        ("DEFAULT", "debug"),
        ("DEFAULT", "rpc_response_timeout"),
        ("DEFAULT", "control_exchange"),
        ("DEFAULT", "compute_driver"),
        ("compute", "max_concurrent_disk_ops"),
        ("api", "auth_strategy"),
        ("api", "max_limit"),
        ("database", "synchronous_reader"),
        ("CLUSTER_LOCK", "hold_timeout"),
        ("libvirt", "virt_type"),
        ("keystone_authtoken", "password"),
        ("oslo_concurrency", "lock_path"),
        ("oslo_messaging_rabbit", "heartbeat_timeout_threshold"),
        ("pci", "device_spec"),
        ("os_brick", "lock_path"),
    ],
)
def test_options_that_are_read_or_are_novas_are_not_reported(tmp_path, group, option):
    assert warnings(tmp_path, **{group: {option: "1"}}) == []


def test_a_group_that_nova_and_the_worker_have_names_novas_options():
    ours = {group for group, _ in conf.list_opts()}
    assert ours.isdisjoint(nova_compat.GROUPS.split())


def test_every_option_of_the_sample_is_known(tmp_path):
    path = tmp_path / "all.conf"
    set_ones = [
        line.removeprefix("#")
        for line in SAMPLE.read_text().splitlines()
        if line.startswith("[") or (" = " in line and not line.startswith("# "))
    ]
    path.write_text("\n".join(set_ones))
    logs = conf.unknown.of_libraries("oslo.log")
    read = [*transport.list_opts(), *logs, *nova_options.list_opts()]
    assert len(set_ones) > 150
    loaded = conf.load(["--config-file", str(path)])
    assert conf.unknown.unknown(loaded, conf.list_opts(), read) == []


def test_files_of_a_directory_are_read_too(tmp_path):
    folder = tmp_path / "conf.d"
    folder.mkdir()
    path = write_config(folder / "a.conf", pending={"tll": 1})
    loaded = conf.load(["--config-dir", str(folder)])
    assert loaded.files == [str(path)]
    assert conf.unread(loaded)[0].startswith(f"{path}: [pending] tll ")


def test_a_variable_of_the_environment_that_nothing_reads_is_reported(monkeypatch):
    monkeypatch.setenv("OS_CLUSTER_LOCK__HOLD_TIMOUT", "3")
    monkeypatch.setenv("OS_DEFAULT__TRANSPORT_URL", "local:/")
    monkeypatch.setenv("OS_LIBVIRT__VIRT_TYPE", "kvm")
    assert conf.unread(conf.load()) == [
        "OS_CLUSTER_LOCK__HOLD_TIMOUT: [cluster_lock] hold_timout is no option that is read; did "
        "you mean hold_timeout?"
    ]
