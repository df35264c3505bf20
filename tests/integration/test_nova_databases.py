"""Nova's databases as a source of hosts, on MariaDB and PostgreSQL."""

import pytest
from sqlalchemy import delete, make_url

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.nova.settings import NovaDatabasesSettings
from scheduler_worker.backends.nova.source import NovaDatabases
from scheduler_worker.codec import decode_host_reports
from scheduler_worker.errors import ConfigError, SourceUnavailable
from scheduler_worker.model.feed import Part, ServiceState
from scheduler_worker.model.topology import count_devices, read_numa_topology, read_pci_pools
from scheduler_worker.ports import Put, Transaction
from scheduler_worker.service.feed.part import SCOPE
from tests.support.feeds import feeder
from tests.support.nova_databases import CPU_INFO, host_mappings, instances, now_utc
from tests.support.servers import LOOPBACK, free_port
from tests.support.services import World


@pytest.fixture
def cloud(nova_cloud):
    return nova_cloud


@pytest.fixture
def open_source(cloud):
    """Opens the databases with accounts that may only read."""
    opened = []

    def open_with(**settings) -> NovaDatabases:
        for name, url in cloud.cell_urls.items():
            cloud.change_mapping(name, database_connection=cloud.reader_of(url))
        url = cloud.reader_of(cloud.api_url)
        given = NovaDatabasesSettings(**{"api_connection": url} | settings)
        opened.append(NovaDatabases(given, decode_host_reports))
        return opened[-1]

    yield open_with
    for each in opened:
        each.close()


def cell_of(cloud, name: str = "cell1") -> str:
    return cloud.cell_ids[name]


def test_the_outline_has_enabled_cells_mapped_hosts_and_aggregates(cloud, open_source):
    cloud.add_cell("cell2")
    cloud.add_cell("cell3")
    cloud.change_mapping("cell3", disabled=True)
    cloud.change_mapping("cell2", name=None)
    cloud.add_hosts("a", "b")
    cloud.discover("c", cell_name="cell2")
    cloud.discover("d", cell_name="cell3")
    cloud.aggregate(7, ["a", "b"], availability_zone="z", ssd="true")
    outline = open_source().outline()
    one, two = cell_of(cloud), cell_of(cloud, "cell2")
    assert set(outline.parts) == {Part(one, "cell1"), Part(two, two)}
    assert outline.part_of == {"a": one, "b": one, "c": two}
    [aggregate] = outline.aggregates
    assert (aggregate.id, aggregate.name, aggregate.hosts) == (7, "agg7", ("a", "b"))
    assert aggregate.metadata == {"availability_zone": "z", "ssd": "true"}


def test_a_row_becomes_a_report_with_all_that_units_read(cloud, open_source):
    cloud.add_hosts("a")
    instance = cloud.boot("a")
    source = open_source()
    source.outline()
    [reading] = source.read(cell_of(cloud), ["a", "unknown"])
    [report] = reading.reports
    assert reading.problems == ()
    assert (report.host, report.nodename) == ("a", "a.example.org")
    assert (report.vcpus, report.memory_mb, report.local_gb) == (32, 65536, 1000)
    assert (report.free_ram_mb, report.free_disk_gb) == (65024, None)
    assert (report.cpu_allocation_ratio, report.ram_allocation_ratio) == (4.0, 1.5)
    assert report.supported_hv_specs == (("x86_64", "kvm", "hvm"),)
    assert report.cpu_info == CPU_INFO
    assert report.stats == {"num_instances": "3", "io_workload": "0"}
    assert count_devices(read_pci_pools(report.pci_device_pools)) == 4
    assert len(read_numa_topology(report.numa_topology).cells) == 2
    assert report.updated_at == pytest.approx(now_utc().timestamp(), abs=86_400)
    [listed] = report.instances
    assert listed["uuid"] == instance
    assert (listed["vcpus"], listed["memory_mb"], listed["root_gb"]) == (2, 2048, 20)


def test_image_properties_are_read_where_they_are_wanted(cloud, open_source):
    cloud.add_hosts("a")
    plain, described = cloud.boot("a"), cloud.boot("a")
    cloud.describe_instance(described, image_os_distro="debian", imagex="no", owner="no")

    def properties(**settings) -> dict[str, dict[str, str]]:
        source = open_source(**settings)
        source.outline()
        [reading] = source.read(cell_of(cloud), ["a"])
        [report] = reading.reports
        return {each["uuid"]: each.get("system_metadata", {}) for each in report.instances}

    assert properties() == {plain: {}, described: {}}
    assert properties(image_properties=True) == {
        plain: {},
        described: {"image_os_distro": "debian"},
    }


def test_services_have_their_state_by_the_databases_clock(cloud, open_source):
    cloud.add_hosts("a", "b", "c")
    cloud.change_service("b", disabled=True, disabled_reason="repair")
    cloud.change_service("c", forced_down=True, last_seen_up=None, created_at=None)
    source = open_source()
    source.outline()
    found = source.services(cell_of(cloud))
    assert set(found.by_host) == {"a", "b", "c"}
    assert abs(found.now_s - found.by_host["a"].last_seen_s) < 60
    assert found.by_host["b"].disabled_reason == "repair"
    assert found.by_host["c"] == ServiceState(None, forced_down=True)


def test_changes_are_those_since_a_time_with_new_rows_and_removals(cloud, open_source):
    cloud.add_hosts("old", updated_at=now_utc(600))
    cloud.add_hosts("changed")
    cloud.add_hosts("new", updated_at=None)
    cloud.boot("old", updated_at=now_utc(600))
    moved, removed = cloud.boot("old"), cloud.boot("changed", task_state="deleting")
    scheduled = cloud.boot(None, vm_state="building", task_state="scheduling")
    building = cloud.boot(None, vm_state="building", task_state=None)
    failed = cloud.boot(None, vm_state="error", task_state=None)
    cloud.delete_instance(removed)
    source = open_source()
    source.outline()
    since_s = source.services(cell_of(cloud)).now_s - 60
    found = source.changes(cell_of(cloud), nodes_since_s=since_s, instances_since_s=since_s)
    assert {row.host for row in found.nodes} == {"changed", "new"}
    assert {row.uuid: (row.host, row.is_settled) for row in found.instances} == {
        moved: ("old", True),
        removed: (None, True),
        scheduled: (None, False),
        building: (None, False),
        failed: (None, True),
    }


def test_a_removal_after_a_change_that_was_seen_is_another_change(cloud, open_source):
    cloud.add_hosts("a")
    instance = cloud.boot("a", updated_at=now_utc(30))
    source = open_source()
    source.outline()

    def seen() -> float:
        since_s = source.services(cell_of(cloud)).now_s - 60
        changes = source.changes(cell_of(cloud), nodes_since_s=since_s, instances_since_s=since_s)
        [row] = changes.instances
        assert row.uuid == instance
        return row.changed_at_s

    before_s = seen()
    cloud.change_instance(
        instance, updated_at=now_utc(30), deleted=instances.c.id, deleted_at=now_utc()
    )
    assert seen() > before_s + 20


def test_the_census_has_live_rows_and_counts_instances(cloud, open_source):
    cloud.add_hosts("a", "b", "gone")
    cloud.remove_host("gone")
    for _ in range(3):
        cloud.boot("a")
    cloud.delete_instance(cloud.boot("b"))
    cloud.boot(None)
    source = open_source()
    source.outline()
    listing = source.listing(cell_of(cloud))
    assert {row.host for row in listing.nodes} == {"a", "b"}
    assert listing.instances == {"a": 3}
    assert source.read(cell_of(cloud), ["gone"]) == []


def test_a_malformed_row_is_named_and_the_others_are_read(cloud, open_source):
    cloud.add_hosts("a", numa_topology="{broken")
    cloud.add_hosts("b", pci_stats="[{")
    cloud.add_hosts("c")
    bad = cloud.boot("c", vcpus=-5)
    good = cloud.boot("c")
    source = open_source()
    source.outline()
    found = {each.host: each for each in source.read(cell_of(cloud), ["a", "b", "c"])}
    assert found["a"].reports == ()
    assert "numa_topology: expected JSON text" in found["a"].problems[0]
    assert "pci_device_pools: expected JSON text" in found["b"].problems[0]
    assert [each["uuid"] for each in found["c"].reports[0].instances] == [good]
    [problem] = found["c"].problems
    assert problem.startswith(f"instance {bad}: vcpus")


def test_a_template_is_filled_from_the_local_connection(cloud, open_source):
    local = cloud.reader_of(cloud.cell_urls["cell1"])
    source = open_source(local_connection=local)
    template = "{scheme}://{username}:{password}@{hostname}:{port}/{path}?{query}"
    cloud.change_mapping("cell1", database_connection=template)
    cloud.add_hosts("a")
    source.outline()
    assert [row.host for row in source.listing(cell_of(cloud)).nodes] == ["a"]


def test_an_account_can_read_and_nothing_is_written(cloud, open_source):
    source = open_source()
    source.outline()
    owners = NovaDatabases(NovaDatabasesSettings(api_connection=cloud.api_url), decode_host_reports)
    assert all(problem is None for _, problem in source.check())
    with (
        pytest.raises(SourceUnavailable, match=r"(?i)read.only"),
        owners._api.reading() as connection,
    ):
        connection.execute(delete(host_mappings).returning(host_mappings.c.id))
    owners.close()


def test_a_cell_that_cannot_be_reached_fails_alone(cloud, open_source):
    cloud.add_hosts("a")
    source = open_source()
    scheme = cloud.api_url.partition(":")[0]
    cloud.add_mapping("away", f"{scheme}://u:pw@{LOOPBACK}:{free_port()}/nova")
    cloud.add_mapping("nonsense", "{scheme}://{username}@host/x")
    source.outline()
    with pytest.raises(SourceUnavailable) as caught:
        source.listing(cell_of(cloud, "away"))
    assert "pw" not in str(caught.value)
    with pytest.raises(SourceUnavailable, match=r"\[database\] connection, which fills it"):
        source.listing(cell_of(cloud, "nonsense"))
    assert len(source.listing(cell_of(cloud)).nodes) == 1
    found = dict(source.check())
    assert found["the database of cell cell1"] is None
    assert found["the database of cell away"]


def test_a_refused_account_of_a_cell_is_said_to_be_of_its_mapping_or_ours(cloud, open_source):
    source = open_source(local_connection="mysql://somebody:secret@host/x")
    url = make_url(cloud.cell_urls["cell1"]).set(username="nobody")
    own = url.render_as_string(hide_password=False)
    cloud.change_mapping("cell1", database_connection=own)
    cloud.add_mapping("cell2", own.replace("nobody", "{username}"))
    found = dict(source.check())
    assert "with the account of its cell mapping: " in (found["the database of cell cell1"] or "")
    ours = "with the account of [database] connection: "
    assert ours in (found["the database of cell cell2"] or "")


def test_a_worker_that_reads_everything_again_writes_nothing(cloud, open_source):
    cloud.add_hosts("a", "b")
    for host in ("a", "a", "b"):
        cloud.boot(host, task_state=None)
    cloud.aggregate(1, ["a"], availability_zone="z")
    world = World(clock=SystemClock())
    first = feeder(world, open_source())
    first.run_due()
    assert len(world.fleet.cluster("default").table) == 2
    world.state.write(SCOPE, [Transaction([Put("n:feed", None)])])
    seen = [world.fleet.cluster("default").seen, world.fleet.globals.seen]
    beside = world.beside()
    second = feeder(beside, open_source(), name="second")
    second.run_due()
    assert second.readiness.unready() is None
    assert [beside.fleet.cluster("default").seen, beside.fleet.globals.seen] == seen


@pytest.mark.parametrize("url", ["", "no url", "oracle://u:pw@h/x"])
def test_a_url_that_cannot_be_used_is_refused_at_once(url):
    with pytest.raises(ConfigError, match=r"\[api_database\] connection cannot be used") as caught:
        NovaDatabases(NovaDatabasesSettings(api_connection=url), decode_host_reports)
    assert "pw" not in str(caught.value)
