"""The check finds overbooked hosts, and no others."""


def booked(first_fit, hosts, **kind):
    from replay.books import Books

    worker = first_fit(**kind)
    worker.update_hosts(hosts)
    return worker, Books(hosts)


def test_a_sound_fleet_has_no_problems(first_fit, host):
    from replay.check import overbooked

    hosts = [host(n, vcpus_used=4, memory_mb_used=8192, local_gb_used=100) for n in range(5)]
    worker, books = booked(first_fit, hosts)
    assert overbooked(worker, books) == []


def test_reservations_on_top_of_the_reported_use_are_counted(first_fit, host, arrival):
    from replay.check import overbooked

    worker, books = booked(first_fit, [host(0, vcpus_used=3)], fits=False)
    for number in range(2):
        worker.select_destinations(arrival(number).spec, [f"vm-{number}"])
    assert overbooked(worker, books) == ["worker: h0 has 5 vcpus used or reserved of 4"]


def test_use_beyond_the_limit_is_found_in_the_books(first_fit, host, arrival):
    from replay.check import overbooked

    worker, books = booked(first_fit, [host(0)])
    books.place("vm", "host-0", arrival(0, vcpus=5).spec)
    assert overbooked(worker, books) == ["books: h0 has 5 vcpus used or reserved of 4"]


def test_the_limit_is_what_is_not_reserved_times_the_ratio(host):
    from replay.books import limit_of

    fields = {
        "reserved_host_cpus": 1,
        "cpu_allocation_ratio": 2.0,
        "reserved_host_memory_mb": 192,
        "ram_allocation_ratio": 1.5,
        "reserved_host_disk_mb": 10 * 1024,
    }
    assert limit_of(host(0, **fields)) == (6.0, 12000.0, 90.0)


def test_all_pages_are_read(first_fit, host, arrival):
    from replay.check import reservations

    worker, _ = booked(first_fit, [host(0)], fits=False)
    for number in range(5):
        worker.select_destinations(arrival(number).spec, [f"vm-{number}"])
    assert len(reservations(worker)) == 5


def test_swap_counts_as_disk_in_whole_gib():
    from replay.books import size_of

    flavor = {"vcpus": 1, "memory_mb": 1, "root_gb": 3, "ephemeral_gb": 2, "swap": 1025}
    assert size_of(flavor).disk_gb == 7
