"""Edited data of a task beside a slow, obvious version."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from core.edits import rewrite
from core.edits.matrix_recount import count_correct_in_matrix_cell
from core.edits.rewrite import EditedLabels
from core.ingest.dataset import memory_map_image_dataset, write_image_dataset_file
from core.ingest.findings.traces import (
    ImageFingerprints,
    read_image_fingerprints,
    write_image_fingerprints,
)

NAMES = ["a", "b", "c"]


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_labels_are_those_of_the_image_else_of_its_class(data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8))
    new = st.sampled_from([*NAMES, "d", None])
    images = data.draw(st.dictionaries(st.integers(0, len(labels) - 1), new))
    classes = data.draw(st.dictionaries(st.sampled_from(NAMES), new))
    edited = rewrite.apply_edit_to_labels(labels, images, classes)
    wanted = []
    for row, label in enumerate(labels):
        if row in images:
            wanted.append(images[row])
        elif label in classes:
            wanted.append(classes[label])
        else:
            wanted.append(label)
    assert edited.after == wanted
    assert edited.remaining_rows.tolist() == [
        row for row in range(len(labels)) if wanted[row] is not None
    ]


def test_a_dataset_and_its_traces_lose_removed_images_and_get_new_labels(tmp_path: Path) -> None:
    images = np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2, 1)
    write_image_dataset_file(tmp_path / "old", np.array([0, 1, 2, 0, 1]), (2, 2, 1), [images])
    train = EditedLabels(["a", "b", "c", "a", "b"], ["a", None, "d", "b", "b"])
    rewrite.write_edited_dataset(tmp_path / "old", tmp_path / "new", train, ["a", "b", "d"])
    found, labels = memory_map_image_dataset(tmp_path / "new")
    assert np.array_equal(found, images[[0, 2, 3, 4]]) and labels.tolist() == [0, 2, 1, 1]
    hashes = np.arange(14, dtype=np.uint64).reshape(7, 2)
    pixels = np.arange(7 * 16, dtype=np.uint8).reshape(7, 16)
    numbers = np.array([0, 1, 2, 0, 1, 0, 2])
    paths = [f"{row}.png" for row in range(7)]
    write_image_fingerprints(
        tmp_path / "traces",
        ImageFingerprints(hashes[:5], hashes[5:], paths, pixels, numbers, NAMES),
    )
    held_out = EditedLabels(["a", "c"], ["a", None])
    assert rewrite.write_edited_fingerprint_file(
        tmp_path / "traces", tmp_path / "edited", train, held_out
    )
    traces = read_image_fingerprints(tmp_path / "edited")
    rows = [0, 2, 3, 4, 5]
    assert np.array_equal(traces.all_perceptual_hashes, hashes[rows]) and traces.names == [
        paths[row] for row in rows
    ]
    assert traces.labels is not None and traces.pixels is not None
    assert [traces.classes[number] for number in traces.labels] == ["a", "d", "b", "b", "a"]
    assert np.array_equal(traces.pixels, pixels[rows])


def test_features_come_back_in_the_order_of_the_dataset(tmp_path: Path) -> None:
    rows = {
        "features": np.arange(12, dtype=np.float32).reshape(6, 2),
        "classes": np.arange(6),
        "keys": np.arange(6 * 16, dtype=np.uint8).reshape(6, 16),
    }
    drawn, others = [1, 4], [0, 2, 3, 5]
    save_file({f"7.{name}": rows[name][drawn] for name in rows}, tmp_path / "read")
    rest = {f"7.rest.{name}": rows[name][others] for name in rows}
    order = {"7.rest.order": np.array(drawn + others)}
    save_file({**rest, **order}, tmp_path / "rest")
    found = rewrite.read_stored_task_features(7, tmp_path / "read", tmp_path / "rest")
    assert np.array_equal(found.features, rows["features"]) and found.is_ordered
    assert np.array_equal(found.keys, rows["keys"]) and found.classes.tolist() == list(range(6))
    save_file(rest, tmp_path / "rest")  # as earlier releases wrote it
    found = rewrite.read_stored_task_features(7, tmp_path / "read", tmp_path / "rest")
    assert found.classes.tolist() == drawn + others and not found.is_ordered


def test_rows_of_classes_move_with_their_classes_and_new_ones_are_zero(tmp_path: Path) -> None:
    save_file({"weight": np.arange(6.0).reshape(3, 2), "bias": np.arange(3.0)}, tmp_path / "old")
    rewrite.write_tensors_with_reordered_class_rows(
        tmp_path / "old", tmp_path / "new", [2, None, 0]
    )
    found = load_file(tmp_path / "new")
    assert found["weight"].tolist() == [[4, 5], [0, 0], [0, 1]] and found["bias"].tolist() == [
        2,
        0,
        0,
    ]


def test_a_cell_is_counted_again_without_removed_images() -> None:
    cell = count_correct_in_matrix_cell(3, 1, ["a", "b", None, "b"], ["a", "a", "b", None])
    assert (cell.correct, cell.total, cell.per_class) == (1, 3, {"a": [1, 2], "b": [0, 1]})
