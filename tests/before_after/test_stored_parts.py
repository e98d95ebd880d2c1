"""Memories are compared row by row, whichever way they are stored."""

import numpy as np

from tests.before_after.stored_parts import digest_memory, join_memory

IMAGES = np.arange(4 * 2 * 2, dtype=np.uint8).reshape(4, 2, 2, 1)
LABELS = np.array([0, 0, 1, 2])
TASKS = np.array([1, 1, 2, 2])
GENERATOR = np.arange(7, dtype=np.uint8)
WHOLE = {"images": IMAGES, "labels": LABELS, "tasks": TASKS, "generator.reservoir": GENERATOR}


def test_images_in_packs_of_their_tasks_are_the_same_rows() -> None:
    rest = {name: tensor for name, tensor in WHOLE.items() if name != "images"}
    parts = {
        "buffer": {**rest, "rows": np.array([1, 0, 0, 2])},
        "buffer.images.1": {"images": IMAGES[[1, 0]]},
        "buffer.images.2": {"images": np.stack([IMAGES[2], IMAGES[0], IMAGES[3]])},
    }
    assert digest_memory(join_memory("buffer", parts)) == digest_memory(
        join_memory("buffer", {"buffer": WHOLE})
    )


def test_another_image_label_or_order_is_another_row_and_a_generator_is_none() -> None:
    found = digest_memory(WHOLE)
    assert found["columns"] == ["images", "labels", "tasks"] and list(found["other"]) == [
        "generator.reservoir"
    ]
    assert len(set(found["rows"])) == 4
    assert (
        digest_memory({**WHOLE, "labels": np.array([0, 0, 1, 1])})["rows"][:3] == found["rows"][:3]
    )
    for changed in (
        {"images": IMAGES[::-1]},
        {"labels": np.array([0, 0, 1, 1])},
        {"tasks": TASKS.astype(np.int32)},
    ):
        assert digest_memory({**WHOLE, **changed})["rows"] != found["rows"]
    other = digest_memory({**WHOLE, "generator.reservoir": GENERATOR[::-1]})
    assert other["rows"] == found["rows"] and other["other"] != found["other"]
