"""Host tables: rows follow reports; claims are consumed and given back exactly."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.model.claims import Claim, Resources
from scheduler_worker.model.host_reports import merged
from scheduler_worker.model.host_table import HostTable


def record(number: int, **reported):
    known = {"uuid": f"u{number}", "host": f"h{number}", "vcpus": 8, "memory_mb": 1000}
    known |= {"local_gb": 10, **reported}
    return merged(None, known, nodename=reported.get("nodename", f"h{number}"), cluster="c",
                  reported_at_s=5.0)  # fmt: skip


def table(count: int = 3) -> HostTable:
    hosts = HostTable()
    hosts.put_new([record(number) for number in range(count)], range(1, count + 1))
    return hosts


def claim(instance: str, host: int, *, vcpus: int = 1, memory_mb: int = 100, disk_mb: int = 7):
    taken = Resources(vcpus=vcpus, memory_mb=memory_mb, disk_mb=disk_mb)
    return Claim(instance_uuid=instance, host_uuid=f"u{host}", host=f"h{host}",
                 nodename=f"h{host}", resources=taken, host_version=1)  # fmt: skip


def test_removing_a_host_moves_the_last_row_into_its_place():
    hosts = table(3)
    hosts.remove("u0")
    assert sorted(host.uuid for host in hosts.states()) == ["u1", "u2"]
    assert hosts.row_of("u0") is None
    assert hosts.rows_of(["h2"]).tolist() == [True, False]
    hosts.remove("nobody")
    assert len(hosts) == 2


def test_host_names_are_found_with_and_without_case():
    hosts = table(2)
    assert hosts.rows_of(["H1"]).tolist() == [False, False]
    assert hosts.rows_of(["H1"], ignore_case=True).tolist() == [False, True]


def test_a_host_with_two_nodes():
    hosts = HostTable()
    hosts.put(record(1, uuid="a", nodename="n1"), 1)
    hosts.put(record(1, uuid="b", nodename="n2"), 2)
    assert [each.uuid for each in hosts.find("h1")] == ["a", "b"]
    assert [each.uuid for each in hosts.find("h1", "n2")] == ["b"]
    hosts.set_instances("h1", {"i": {"uuid": "i"}})
    assert hosts.count_instances(["i", "i", "x"]).tolist() == [1, 1]


def test_derived_columns_survive_an_overflow_of_the_change_log():
    hosts = table(2)
    hosts.derived("type", lambda host: host.record.hypervisor_version, "i8")
    for version in range(1, 600):
        hosts.put(record(0, hypervisor_version=version), version)
    values = hosts.derived("type", lambda host: host.record.hypervisor_version, "i8")
    assert values.tolist() == [599, 0]


def test_an_unknown_column_is_named_in_the_error():
    with pytest.raises(AttributeError, match="free_ram_gb"):
        table().free_ram_gb  # noqa: B018
    with pytest.raises(AttributeError, match="vcpu_used"):
        table().state(0).vcpu_used  # noqa: B018


def test_the_table_grows():
    hosts = table(1000)
    assert len(hosts) == 1000
    assert hosts.total_usable_ram_mb.sum() == 1_000_000


STEPS = st.lists(
    st.tuples(st.sampled_from("pepeprxl"), st.integers(0, 3), st.integers(0, 3)), max_size=40
)

BUILDING, ACTIVE = {"vm_state": "building"}, {"vm_state": "active"}


def counts(hosts):
    state = hosts.state(0)
    return state.num_instances, state.num_io_ops, state.reserved_instances


def test_instances_that_a_host_lists_count_once_also_while_they_are_reserved():
    hosts = table()
    hosts.consume(claim("b", 0))
    assert counts(hosts) == (1, 1, 1)
    hosts.set_instances("h0", {"a": ACTIVE, "b": BUILDING})
    assert counts(hosts) == (2, 1, 1)
    hosts.put(record(0), 4)
    assert counts(hosts) == (2, 1, 1)
    assert counts(hosts.without_pending()) == (2, 1, 0)
    hosts.give_back("b@u0")
    assert counts(hosts) == (2, 1, 0)
    hosts.set_instances("h0", {"a": {"task_state": "resize_prep"}})
    assert counts(hosts) == (1, 1, 0)
    hosts.set_instances("h0", None)
    assert counts(hosts) == (0, 0, 0)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({"num_instances": "7", "io_workload": "0"}, (7, 0)),
        ({"num_instances": "0"}, (0, 1)),
        ({"num_instances": None, "rack": "7"}, (2, 1)),
    ],
)
def test_a_statistic_counts_in_place_of_the_list(stats, expected):
    hosts = table()
    hosts.set_instances("h0", {"a": ACTIVE, "b": BUILDING})
    hosts.put(record(0, stats=stats), 4)
    assert counts(hosts)[:2] == expected


def test_an_instance_counts_on_the_node_that_it_names():
    hosts = HostTable()
    hosts.set_instances("h1", {"i": {"node": "n1"}, "j": {"node": "n2"}, "k": {"node": "n2"}})
    hosts.put_new([record(1, uuid=node, nodename=node) for node in ("n1", "n2")], [1, 2])
    assert hosts.num_instances.tolist() == [1, 2]


def test_a_node_that_was_created_anew_has_what_is_reserved_under_its_former_uuid():
    hosts = table()
    hosts.consume(claim("i", 1, vcpus=2))
    hosts.put(record(1, uuid="new"), 4)
    hosts.remove("u1")
    hosts.consume(claim("j", 1, vcpus=3))
    row = hosts.row_of("new")
    assert row is not None
    assert hosts.state(row).vcpus_used == 5
    assert {each.instance_uuid for each in hosts.reservations_of_host("new")} == {"i", "j"}
    assert hosts.state(row).instances.keys() == {"i", "j"}
    for reservation in ("i@u1", "j@u1"):
        hosts.give_back(reservation)
    assert hosts.state(row).vcpus_used == 0


@given(STEPS)
def test_rows_are_reports_less_the_reservations_of_their_node_whatever_uuids_it_has_had(steps):
    """The host of an even number and of the odd one after it are the same node."""
    hosts, live, known, listed = HostTable(), {}, set(), {"h0": set(), "h1": set()}
    for step, instance, host in steps:
        node = f"h{host // 2}"
        one = claim(f"i{instance}", host, vcpus=instance + 1, memory_mb=instance * 10)
        one = msgspec.structs.replace(one, host=node, nodename=node)
        if step == "p":
            hosts.consume(one)
            live[one.id] = one
        elif step == "e":
            hosts.give_back(one.id)
            live.pop(one.id, None)
        elif step == "r":
            hosts.put(record(host, host=node, nodename=node), 1)
            known.add(f"u{host}")
        elif step == "l":
            listed[node] = {f"i{number}" for number in range(instance)}
            hosts.set_instances(node, dict.fromkeys(listed[node], ACTIVE))
        else:
            hosts.remove(f"u{host}")
            known.discard(f"u{host}")
    assert {state.uuid for state in hosts.states()} == known
    for name in ("h0", "h1"):
        there = [state for state in hosts.states() if state.host == name]
        mine = [each for each in live.values() if each.host == name and there]
        found = [each for state in there for each in hosts.reservations_of_host(state.uuid)]
        assert sorted(each.id for each in found) == sorted(each.id for each in mine)
        unlisted = sum(each.instance_uuid not in listed[name] for each in mine)
        listed_here = len(listed[name]) * len(there)
        assert sum(each.num_instances for each in there) == listed_here + unlisted
        assert sum(each.reserved_instances for each in there) == len(mine)
        assert sum(each.vcpus_used for each in there) == sum(each.resources.vcpus for each in mine)
        taken_mb = sum(each.resources.memory_mb for each in mine)
        assert sum(each.free_ram_mb for each in there) == 1000 * len(there) - taken_mb
