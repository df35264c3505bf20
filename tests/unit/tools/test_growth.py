"""The model of what calls cost, and the virtual workers that it is compared with."""

import itertools

import pytest
from bench.growth import OF_PART, Cloud, Load, Model, VirtualWorkers, fitted, needs

MODEL = Model(
    worker=(0.3, 0.4, 0.06, 0.02, 0.01),
    redis=(0.04, 0.08, 0.0, 0.0, 0.0),
    rabbit=(0.12, 0.0, 0.0, 0.0, 0.0),
    error=0.0,
)
LOADS = [
    Load(leaders, clusters, hosts, in_flight)
    for leaders, clusters, hosts, in_flight in itertools.product(
        (1, 2, 8), (1, 8), (100, 5000), (1, 32, 512)
    )
]


def rows(model: Model) -> list[tuple[Load, dict]]:
    """What would be measured if the model held."""
    return [
        (load, {name: model.cpu_ms(part, load) for part, name in OF_PART.items()}) for load in LOADS
    ]


def test_the_terms_are_found_in_what_was_measured():
    found = fitted(rows(MODEL))
    for part in OF_PART:
        assert getattr(found, part) == pytest.approx(getattr(MODEL, part), abs=1e-9)
    assert found.error == pytest.approx(0.0)


def test_no_term_is_negative():
    found = fitted(rows(MODEL._replace(worker=(0.3, 0.4, -0.05, 0.02, 0.01))))
    assert min(found.worker) == 0.0
    assert found.error > 0.0


def test_a_larger_load_needs_more_until_nothing_is_enough():
    small, large = (needs(MODEL, Cloud(rate, 20, 500)) for rate in (100, 5000))
    assert small["workers"] == small["redis_servers"] == 1
    assert large["workers"] > large["calls_per_s"] * large["worker_ms"] / 1000
    endless = needs(MODEL._replace(worker=(0.3, 0.4, 0.06, 1.0, 0.0)), Cloud(20_000, 20, 500))
    assert endless["workers"] == 256


def play(cloud: Cloud, workers: int, model: Model = MODEL) -> VirtualWorkers:
    virtual = VirtualWorkers(model, cloud, workers, redis_servers=1)
    virtual.run(5000)
    return virtual


def test_virtual_replicas_that_are_not_needed_stay_idle():
    one, many = (play(Cloud(200, 5, 500), workers) for workers in (1, 64))
    assert many.leaders() == 1
    assert one.times_ms == many.times_ms


def test_more_virtual_workers_answer_more():
    cloud = Cloud(5000, 200, 500)
    few, enough = play(cloud, 1), play(cloud, 8)
    assert few.now_s() > 2 * enough.now_s()
    assert 1 < enough.leaders() < 8
    own_ms = enough.busy_ms / len(enough.times_ms)
    load = Load(enough.leaders(), cloud.clusters, cloud.hosts, 1000)
    assert own_ms == pytest.approx(MODEL.cpu_ms("worker", load), rel=0.15)
