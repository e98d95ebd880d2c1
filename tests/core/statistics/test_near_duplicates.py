"""Near duplicates: hashes that survive another encoding, and a search that finds what comparing all
pairs finds.
"""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from core.ingest.findings.batch_data import (
    EXAMPLES,
    EarlierTaskWithFingerprints,
    add_near_duplicates_of_earlier_tasks,
    build_class_balance_report,
    find_near_duplicates_in_batch,
)
from core.ingest.findings.traces import (
    ImageFingerprints,
    read_image_fingerprints,
    write_image_fingerprints,
)
from core.statistics import near_duplicates
from core.statistics.near_duplicates import (
    MOST_BITS,
    compute_hamming_distances,
    hash_images_perceptually,
)


def draw_smooth_pictures(count: int, size: int = 32, seed: int = 0) -> np.ndarray:
    """Draw smooth pictures that all differ, uint8 [N, S, S, 3]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return np.stack(
        [
            np.asarray(Image.fromarray(one).resize((size, size), Image.Resampling.BICUBIC))
            for one in coarse
        ]
    )


def save_again_as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=quality)
    return np.asarray(Image.open(out))


def find_near_pairs_slowly(found: np.ndarray, others: np.ndarray) -> np.ndarray:
    return compute_hamming_distances(found[:, None], others[None]) <= MOST_BITS


@given(st.integers(0, 2**31), st.integers(60, 95))
@settings(max_examples=30, deadline=None)
def test_a_copy_that_was_saved_again_has_nearly_the_same_hash(seed: int, quality: int) -> None:
    image = draw_smooth_pictures(1, seed=seed)
    again = save_again_as_jpeg(image[0], quality)[None]
    assert (
        compute_hamming_distances(hash_images_perceptually(image), hash_images_perceptually(again))[
            0
        ]
        <= MOST_BITS
    )


@given(st.integers(0, 2**31), st.integers(-20, 20))
@settings(max_examples=30, deadline=None)
def test_brightness_changes_no_hash(seed: int, more: int) -> None:
    image = np.clip(draw_smooth_pictures(1, seed=seed), 40, 215)
    brighter = (image.astype(int) + more).astype(np.uint8)
    assert (
        compute_hamming_distances(
            hash_images_perceptually(image), hash_images_perceptually(brighter)
        )[0]
        <= 2
    )  # grey levels round


def test_a_resized_copy_has_nearly_the_same_hash() -> None:
    large = draw_smooth_pictures(20, 64)
    small = np.stack(
        [
            np.asarray(Image.fromarray(one).resize((32, 32), Image.Resampling.BICUBIC))
            for one in large
        ]
    )
    assert (
        compute_hamming_distances(hash_images_perceptually(large), hash_images_perceptually(small))
        <= MOST_BITS
    ).all()


def test_noise_in_a_plain_image_says_nothing() -> None:
    plain = np.full((2, 32, 32, 1), 128, np.uint8)
    plain[1, ::2] += 1
    assert (hash_images_perceptually(plain) == 0).all()


def draw_hashes_with_copies(seed: int, count: int = 200) -> np.ndarray:
    """Draw random hashes, and of some of them copies with 0 to 10 other bits."""
    generator = np.random.default_rng(seed)
    found = generator.integers(0, 2**64, (count, 2), dtype=np.uint64)
    for row in range(1, count, 2):
        found[row] = found[row - 1]
        for bit in generator.choice(128, generator.integers(0, 11), replace=False).tolist():
            found[row, bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return found[generator.permutation(count)]


@given(st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_bands_find_what_comparing_all_pairs_finds(seed: int) -> None:
    found = draw_hashes_with_copies(seed)
    told = near_duplicates.find_near_duplicates_within(found)
    assert told.complete
    truth = np.tril(find_near_pairs_slowly(found, found), -1)
    assert np.array_equal(told.near >= 0, truth.any(1))
    rows = np.flatnonzero(told.near >= 0)
    assert truth[rows, told.near[rows]].all()


@given(st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_bands_find_every_near_duplicate_of_an_earlier_task(seed: int) -> None:
    found = draw_hashes_with_copies(seed)
    own, earlier = found[:100], found[100:]
    told = near_duplicates.find_near_duplicates_between(own, earlier)
    truth = find_near_pairs_slowly(own, earlier)
    assert told.complete and np.array_equal(told.near >= 0, truth.any(1))
    rows = np.flatnonzero(told.near >= 0)
    assert truth[rows, told.near[rows]].all()


@given(st.integers(0, 2**31), st.integers(0, 250))
@settings(max_examples=40, deadline=None)
def test_several_groups_in_one_search_have_the_rows_that_comparing_all_pairs_gives(
    seed: int, batch: int
) -> None:
    hashes = draw_hashes_with_copies(seed, 260)
    own, others = hashes[:batch], [hashes[batch:200], hashes[:0], hashes[200:]]
    for theirs, found in zip(
        others, near_duplicates.find_near_duplicates_against_each_group(own, others), strict=True
    ):
        is_near, is_equal = (
            find_near_pairs_slowly(own, theirs),
            (own[:, None] == theirs[None]).all(-1),
        )
        expected = [
            int(np.flatnonzero(equal if equal.any() else close)[0]) if close.any() else -1
            for close, equal in zip(is_near, is_equal, strict=True)
        ]
        assert found.complete and found.near.tolist() == expected


def test_many_images_of_one_band_take_bounded_work_and_are_said_to_be_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(near_duplicates, "COMPARISONS", 100)
    found = np.random.default_rng(0).integers(0, 2**64, (200, 2), dtype=np.uint64)
    found[:, 0] &= ~np.uint64(0xFFFF)
    assert not near_duplicates.find_near_duplicates_within(found).complete
    equal = np.zeros((200, 2), np.uint64)  # equal hashes are one, however many
    told = near_duplicates.find_near_duplicates_within(equal)
    assert told.complete and (told.near[1:] == 0).all() and told.near[0] == -1


def test_nothing_is_near_in_an_empty_part() -> None:
    none, some = np.zeros((0, 2), np.uint64), hash_images_perceptually(draw_smooth_pictures(3))
    assert near_duplicates.find_near_duplicates_within(none).near.size == 0
    assert (near_duplicates.find_near_duplicates_between(some, none).near == -1).all()
    assert near_duplicates.find_near_duplicates_between(none, some).near.size == 0


def test_a_batch_is_told_what_it_repeats_of_itself_and_of_earlier_tasks() -> None:
    images = draw_smooth_pictures(12)
    own = ImageFingerprints(
        hash_images_perceptually(images[:6]),
        hash_images_perceptually(images[[2, 8]]),
        [f"a{i}" for i in range(8)],
    )
    repeat = np.zeros(8, np.bool_)
    found = find_near_duplicates_in_batch(own, repeat)
    assert found["within"] == {"count": 1, "examples": [{"path": "a6", "like": "a2"}]}
    assert found["held_out"] == found["within"]
    theirs = ImageFingerprints(
        hash_images_perceptually(images[[9, 3]]),
        hash_images_perceptually(images[[4, 10]]),
        ["b0", "b1", "b2", "b3"],
    )
    told = add_near_duplicates_of_earlier_tasks(
        found,
        own,
        iter([EarlierTaskWithFingerprints(3, None), EarlierTaskWithFingerprints(2, theirs)]),
    )
    assert told["earlier"] == [
        {
            "task": 2,
            "count": 2,
            "held_out": 1,
            "examples": [{"path": "a4", "like": "b2"}, {"path": "a3", "like": "b1"}],
        }
    ]
    assert told["not_compared"] == [3] and told["complete"]


def test_equal_bytes_are_duplicates_and_no_near_ones() -> None:
    same = hash_images_perceptually(draw_smooth_pictures(1)[[0, 0]])
    traces = ImageFingerprints(same, np.zeros((0, 2), np.uint64), ["a", "b"])
    assert find_near_duplicates_in_batch(traces, np.array([False, True]))["within"]["count"] == 0


def test_examples_are_few_and_counts_whole() -> None:
    many = ImageFingerprints(
        hash_images_perceptually(draw_smooth_pictures(1)[[0] * 50]),
        np.zeros((0, 2), np.uint64),
        [str(i) for i in range(50)],
    )
    found = find_near_duplicates_in_batch(many, np.zeros(50, np.bool_))["within"]
    assert (found["count"], len(found["examples"])) == (49, EXAMPLES)


def test_traces_come_back_as_they_were_written(tmp_path) -> None:
    traces = ImageFingerprints(
        hash_images_perceptually(draw_smooth_pictures(3)),
        hash_images_perceptually(draw_smooth_pictures(2, seed=1)),
        ["ä/1.png", "b", "c\udc80", "d", "e"],
    )
    write_image_fingerprints(tmp_path / "one", traces)
    write_image_fingerprints(tmp_path / "two", traces)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    back = read_image_fingerprints(tmp_path / "one")
    assert (
        np.array_equal(back.all_perceptual_hashes, traces.all_perceptual_hashes)
        and back.names == traces.names
    )


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_what_is_no_file_of_traces_is_a_value_error(tmp_path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match="holds no traces"):
        read_image_fingerprints(tmp_path / "bad")


def test_balance_names_classes_of_few_images() -> None:
    sizes = {"cat": 50, "dog": 4, "elk": 10}
    found = build_class_balance_report(
        {label: {"images": n, "held_out": None} for label, n in sizes.items()}
    )
    assert (found["few"], found["imbalance_ratio"]) == (["dog"], 12.5)


@given(st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_only_hashes_without_any_common_band_are_passed_over(seed: int) -> None:
    hashes = draw_hashes_with_copies(seed)
    own, earlier = hashes[:20], hashes[20:]
    bands = [set(np.ascontiguousarray(own).view(np.uint16)[:, band].tolist()) for band in range(8)]
    expected = [
        row
        for row, keys in enumerate(np.ascontiguousarray(earlier).view(np.uint16).tolist())
        if any(key in bands[band] for band, key in enumerate(keys))
    ]
    assert near_duplicates.find_rows_with_common_hash_band(earlier, own).tolist() == expected
