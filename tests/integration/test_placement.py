"""The port ``Allocations`` on a real Placement, and the model of it, which says the same."""

import uuid
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.placement.claiming import PlacementAllocations
from scheduler_worker.errors import PlacementRefused
from scheduler_worker.model.providers import Consumer, Owner
from scheduler_worker.placement import Why
from tests.support.placement_model import PlacementModel
from tests.support.placement_server import Cloud

OWNER = Owner("project", "user")
ROOM = {"VCPU": 4, "MEMORY_MB": 1024}
TIMEOUT_S = 60.0


class Scene:
    """Placement or its model, with two providers of 4 VCPU."""

    def __init__(self, cloud: Cloud | None) -> None:
        if cloud is None:
            self.providers = [str(uuid.uuid4()) for _ in range(2)]
            self.allocations: Any = PlacementModel(**dict.fromkeys(self.providers, ROOM))
        else:
            self.providers = [cloud.add(uuid.uuid4().hex, **ROOM) for _ in range(2)]
            self.allocations = PlacementAllocations(cloud.session)
        self.consumers = [str(uuid.uuid4()) for _ in range(3)]

    def consumer(self, number: int, *taken: tuple[int, int], generation: int | None = None):
        """``taken``: provider number and VCPU of each."""
        return Consumer(
            uuid=self.consumers[number],
            owner=OWNER,
            held={self.providers[at]: {"VCPU": amount} for at, amount in taken},
            mappings={"": [self.providers[at] for at, _ in taken]} if taken else {},
            generation=generation,
        )

    def write(self, *consumers: Consumer) -> Why | None:
        refusal = self.allocations.write(consumers, timeout_s=TIMEOUT_S)
        return refusal and refusal.why

    def read(self, number: int) -> tuple[dict[int, int], int | None] | None:
        """VCPU by provider number, and the generation."""
        found = self.allocations.read(self.consumers[number], timeout_s=TIMEOUT_S)
        if found is None:
            return None
        held = {self.providers.index(each): held["VCPU"] for each, held in found.held.items()}
        return held, found.generation


@pytest.fixture(params=["real", "model"])
def scene(request) -> Scene:
    is_real = request.param == "real"
    return Scene(request.getfixturevalue("placement_cloud") if is_real else None)


def test_a_new_consumer_has_generation_1_after_it_was_written(scene):
    assert scene.write(scene.consumer(0, (0, 1), generation=0)) is Why.CHANGED
    assert scene.write(scene.consumer(0, (0, 1))) is None
    assert scene.read(0) == ({0: 1}, 1)


def test_a_write_needs_the_present_generation_and_raises_it(scene):
    scene.write(scene.consumer(0, (0, 1)))
    assert scene.write(scene.consumer(0, (0, 1))) is Why.CHANGED
    assert scene.write(scene.consumer(0, (0, 1), generation=0)) is Why.CHANGED
    assert scene.write(scene.consumer(0, (0, 1), (1, 1), generation=1)) is None
    assert scene.read(0) == ({0: 1, 1: 1}, 2)


def test_a_consumer_that_holds_nothing_any_more_is_new(scene):
    scene.write(scene.consumer(0, (0, 1)))
    assert scene.write(scene.consumer(0, generation=1)) is None
    assert scene.read(0) is None
    assert scene.write(scene.consumer(0, (0, 1), generation=2)) is Why.CHANGED
    assert scene.write(scene.consumer(0, (0, 1))) is None


def test_several_are_written_together_or_not_at_all(scene):
    assert scene.write(scene.consumer(0, (0, 3)), scene.consumer(1, (0, 3))) is Why.FULL
    assert scene.read(0) is scene.read(1) is None
    assert scene.write(scene.consumer(0, (0, 2)), scene.consumer(1, (0, 2))) is None


def test_a_body_may_empty_one_consumer_and_fill_another(scene):
    scene.write(scene.consumer(0, (0, 4)))
    moved = scene.consumer(1, (0, 4))
    assert scene.write(scene.consumer(0, generation=1), moved) is None
    assert scene.read(0) is None
    assert scene.read(1) == ({0: 4}, 1)


def test_a_class_that_a_provider_does_not_have_is_a_lack_of_capacity(scene):
    asked = msgspec.structs.replace(
        scene.consumer(0, (0, 1)), held={scene.providers[0]: {"DISK_GB": 1}}
    )
    refusal = scene.allocations.write([asked], timeout_s=TIMEOUT_S)
    assert refusal.why is Why.FULL
    assert refusal.providers == (scene.providers[0],)


def test_a_provider_that_is_gone_leaves_empty_consumers_behind(scene):
    gone = str(uuid.uuid4())
    lost = msgspec.structs.replace(scene.consumer(0), held={gone: {"VCPU": 1}})
    refusal = scene.allocations.write([lost, scene.consumer(1, (0, 1))], timeout_s=TIMEOUT_S)
    assert refusal.why is Why.GONE
    assert refusal.providers == (gone,)
    for number in (0, 1):
        assert scene.read(number) is None
        assert scene.write(scene.consumer(number, (0, 1))) is Why.CHANGED
        assert scene.write(scene.consumer(number, (0, 1), generation=0)) is None


def test_what_placement_does_not_understand(placement_cloud):
    scene = Scene(placement_cloud)
    wrong = msgspec.structs.replace(scene.consumer(0, (0, 1)), owner=Owner("", "user"))
    with pytest.raises(PlacementRefused, match="400"):
        scene.write(wrong)
