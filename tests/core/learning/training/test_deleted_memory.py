"""A parent whose stored images were deleted: its task goes on without them, and says so."""

import pytest
from conformance import SMALL
from streams import Bench

from core.learning.methods import registry

IMAGES = {"buffer", "exemplars"}
KEEPERS = sorted(
    name for name, method in registry.METHODS.items() if IMAGES & set(method.inherited_state)
)


def remove_images(spec):
    """Return the spec as the worker writes it after the deletion."""
    gone = sorted({part["type"] for part in spec["parent"]["parts"]} & IMAGES)
    parts = [part for part in spec["parent"]["parts"] if part["type"] not in gone]
    return {**spec, "parent": {**spec["parent"], "parts": parts, "deleted": gone}}


@pytest.mark.parametrize("name", KEEPERS)
def test_every_method_starts_with_an_empty_memory(tmp_path, name) -> None:
    bench = Bench(tmp_path)
    if families := registry.get_method(name).accepts.architectures:
        bench.architecture = SMALL[families[0]]
    first = bench.learn_task(1, method=name)
    kinds = {part["type"] for part in first.result["parts"]} & IMAGES
    assert kinds, "the method keeps images"
    second = bench.learn(remove_images(bench.spec(2, first, method=name)))
    assert second.warns("were deleted")
    for kind in kinds:
        assert set(second.tensors(kind)["tasks"].tolist()) == {2}


def test_what_was_counted_of_deleted_images_does_not_count_on(bench) -> None:
    """A reservoir that believed in 22 earlier images would keep fewer of the new ones."""
    recipe = {"method": {"name": "er", "buffer": 10}}
    first = bench.learn_task(1, **recipe)
    second = bench.learn(remove_images(bench.spec(2, first, **recipe)))
    assert second.result["method"]["state"]["buffer"]["seen"] == bench.n


def test_a_method_that_would_not_have_used_the_images_says_nothing_of_them(bench) -> None:
    first = bench.learn_task(1, method="er")
    second = bench.learn(remove_images(bench.spec(2, first, method="finetune")))
    assert not second.warns("were deleted")
