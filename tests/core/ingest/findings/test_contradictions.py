"""Images under two labels: found as comparing all with all finds them, in a batch and beside
earlier tasks.
"""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.reports.report import BatchReport
from core.errors import Rejected
from core.ingest.findings import contradictions
from core.ingest.findings.traces import (
    ImageFingerprints,
    read_image_fingerprints,
    write_image_fingerprints,
)
from core.statistics import near_duplicates
from core.statistics.near_duplicates import MOST_BITS, Hashes, Rows, compute_hamming_distances


def make_traces(images: np.ndarray, labels: list[str], prefix: str = "") -> ImageFingerprints:
    """Return the fingerprints of images, uint8 [N, S, S, C], all of which are learned."""
    classes = sorted(set(labels))
    return ImageFingerprints(
        near_duplicates.hash_images_perceptually(images),
        np.zeros((0, 2), np.uint64),
        [f"{prefix}{row}.png" for row in range(len(images))],
        contradictions.digest_pixels_of_each_image(images),
        np.array([classes.index(label) for label in labels], np.int64),
        classes,
    )


def list_pairs(found: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(tuple(one["paths"]), tuple(one["labels"])) for one in found]  # type: ignore[arg-type]


def draw_noise_images(numbers: list[int]) -> np.ndarray:
    """Draw an image of noise for each number; equal numbers have equal images."""
    return np.stack(
        [np.random.default_rng(one).integers(0, 256, (8, 8, 3), dtype=np.uint8) for one in numbers]
    )


MEMBERS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1, max_size=14)


@pytest.mark.slow
@given(MEMBERS)
@settings(deadline=None)
def test_equal_pixels_under_two_labels_are_found_in_a_batch(members: list[tuple[int, str]]) -> None:
    labels = [label for _, label in members]
    images = draw_noise_images([number for number, _ in members])
    expected = set()
    for row, (number, label) in enumerate(members):
        first = next(i for i, (other, _) in enumerate(members) if other == number)
        is_first_of_label = members.index((number, label)) == row
        if label != labels[first] and is_first_of_label:
            expected.add(((f"{first}.png", f"{row}.png"), (labels[first], label)))
    found = contradictions.find_label_contradictions_in_batch(
        make_traces(images, labels), lambda row: images[row]
    ).to_report()
    assert set(list_pairs(found["conflicts"])) == expected  # type: ignore[arg-type]
    assert found["conflicts_count"] == len(expected)


@given(MEMBERS, MEMBERS)
@settings(deadline=None)
def test_equal_pixels_under_another_label_of_an_earlier_task_are_found(
    members: list[tuple[int, str]], earlier: list[tuple[int, str]]
) -> None:
    images = draw_noise_images([number for number, _ in members])
    own = make_traces(images, [label for _, label in members])
    made = contradictions.LabelContradictions()
    half = len(earlier) // 2
    parts = (earlier[:half], earlier[half:])
    tasks = [
        (
            number,
            make_traces(
                draw_noise_images([n for n, _ in part]), [label for _, label in part], f"{number}/"
            ),
        )
        for number, part in enumerate(parts, 3)
        if part
    ]
    contradictions.add_label_contradictions_with_earlier_tasks(
        made, own, tasks, lambda row: images[row]
    )
    found = made.to_report()
    expected = {
        row
        for row, (number, label) in enumerate(members)
        if any(other == number and name != label for other, name in earlier)
    }
    assert {one["paths"][1] for one in found["conflicts"]} == {f"{row}.png" for row in expected}
    assert found["conflicts_count"] == len(expected)
    for one in found["conflicts"]:
        task, _, place = one["paths"][0][:-4].partition("/")
        before, after = parts[int(task) - 3][int(place)], members[int(one["paths"][1][:-4])]
        assert (
            before[0] == after[0]
            and one["labels"] == [before[1], after[1]]
            and one["task"] == int(task)
        )


def find_near_contradictions(
    hashes: Hashes, labels: Rows, earlier: Hashes, earlier_labels: Rows
) -> set[int]:
    close = compute_hamming_distances(hashes[:, None], earlier[None]) <= MOST_BITS
    return set(np.flatnonzero((close & (labels[:, None] != earlier_labels[None])).any(1)).tolist())


def draw_hashes(seed: int, count: int) -> tuple[Hashes, Rows]:
    """Draw hashes, many of which are a few bits apart, and labels."""
    random = np.random.default_rng(seed)
    base = random.integers(0, 2**63, (4, 2), dtype=np.uint64)
    found = base[random.integers(0, 4, count)].copy()
    for row in range(count):
        for bit in random.integers(0, 128, random.integers(0, 9)):
            found[row, bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return found, random.integers(0, 3, count)


@given(st.integers(0, 2**31), st.integers(0, 30))
@settings(deadline=None)
def test_near_duplicates_under_another_label_are_those_that_all_pairs_have(
    seed: int, count: int
) -> None:
    hashes, labels = draw_hashes(seed, count)
    found = near_duplicates.find_near_duplicates_with_other_label(hashes, labels)
    later = {
        row
        for row in range(count)
        if row
        in find_near_contradictions(
            hashes[: row + 1], labels[: row + 1], hashes[:row], labels[:row]
        )
    }
    assert {row for _, row in found} == later
    for first, row in found:
        assert first < row and labels[first] != labels[row]
        assert compute_hamming_distances(hashes[first], hashes[row]) <= MOST_BITS


@given(st.integers(0, 2**31), st.integers(0, 20), st.integers(0, 20))
@settings(deadline=None)
def test_near_duplicates_of_earlier_images_are_those_that_all_pairs_have(
    seed: int, count: int, earlier: int
) -> None:
    hashes, labels = draw_hashes(seed, count + earlier)
    old, new = slice(0, earlier), slice(earlier, None)
    found = near_duplicates.find_near_duplicates_with_other_label(
        hashes[new], labels[new], hashes[old], labels[old]
    )
    assert {row for _, row in found} == find_near_contradictions(
        hashes[new], labels[new], hashes[old], labels[old]
    )


@given(st.integers(0, 2**31), st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None)
def test_each_image_has_the_first_near_duplicate_under_another_label(
    seed: int, count: int, earlier: int
) -> None:
    hashes, labels = draw_hashes(seed, count + earlier)
    contradicts = (compute_hamming_distances(hashes[:, None], hashes[None]) <= MOST_BITS) & (
        labels[:, None] != labels[None]
    )

    def first_of(row: int, rows: range) -> list[tuple[int, int]]:
        return [(one, row) for one in rows if contradicts[one, row]][:1]

    within = [pair for row in range(len(hashes)) for pair in first_of(row, range(row))]
    assert near_duplicates.find_near_duplicates_with_other_label(hashes, labels) == within
    beside = [
        (one, row - earlier)
        for new in range(earlier, len(hashes))
        for one, row in first_of(new, range(earlier))
    ]
    old, new = slice(0, earlier), slice(earlier, None)
    assert (
        near_duplicates.find_near_duplicates_with_other_label(
            hashes[new], labels[new], hashes[old], labels[old]
        )
        == beside
    )


@pytest.fixture(scope="module")
def burst() -> Hashes:
    """300 distinct hashes, each with three bits of 128, so all are near duplicates of each
    other.
    """
    random = np.random.default_rng(0)
    found = np.zeros((400, 2), np.uint64)
    for row in range(len(found)):
        for bit in random.choice(128, 3, replace=False):
            found[row, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return np.unique(found, axis=0)[:300]


@pytest.mark.parametrize(("label_count", "expected"), [(1, 0), (2, 299)])
def test_the_memory_for_a_burst_does_not_grow_with_its_pairs(
    burst: Hashes, label_count: int, expected: int
) -> None:
    labels = np.arange(len(burst)) % label_count
    tracemalloc.start()
    try:
        found = near_duplicates.find_near_duplicates_with_other_label(burst, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == expected
    assert peak < 1000 * len(burst), "the pairs of this burst take some megabytes"


def test_hashes_of_one_label_are_not_compared(
    burst: Hashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def count_and_compare(one: Hashes, other: Hashes) -> np.ndarray:
        nonlocal compared
        compared += len(one)
        return compute_hamming_distances(one, other)

    monkeypatch.setattr(near_duplicates, "compute_hamming_distances", count_and_compare)
    assert (
        near_duplicates.find_near_duplicates_with_other_label(burst, np.zeros(len(burst), np.int64))
        == []
    )
    assert compared == 0


def test_a_near_contradiction_is_listed_and_no_equal_one_is_listed_twice() -> None:
    image = np.zeros((3, 16, 16, 3), np.uint8)
    image[:] = np.arange(16, dtype=np.uint8)[None, None, :, None] * 16
    image[2, 0, 0] += 1  # hardly another picture
    found = contradictions.find_label_contradictions_in_batch(
        make_traces(image, ["good", "bad", "bad"]), lambda row: image[row]
    )
    report = found.to_report()
    assert list_pairs(report["conflicts"]) == [(("0.png", "1.png"), ("good", "bad"))]  # type: ignore[arg-type]
    assert list_pairs(report["near_conflicts"]) == [(("0.png", "2.png"), ("good", "bad"))]  # type: ignore[arg-type]
    assert all(
        one["picture"].startswith("data:image/jpeg;base64,") for one in report["near_conflicts"]
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_the_first_ten_have_a_picture(channels: int) -> None:
    image = np.concatenate([draw_noise_images(list(range(24)))] * 2)[..., :channels]
    labels = ["a"] * 24 + ["b"] * 24
    report = contradictions.find_label_contradictions_in_batch(
        make_traces(image, labels), lambda row: image[row]
    ).to_report()
    assert report["conflicts_count"] == 24
    assert ["picture" in one for one in report["conflicts"]] == [True] * 10 + [False] * 14


def test_traces_keep_digests_and_labels_and_those_of_earlier_releases_are_read(
    tmp_path: Path,
) -> None:
    traces = make_traces(draw_noise_images([1, 2, 1]), ["ä", "b", "b"])
    write_image_fingerprints(tmp_path / "new", traces)
    read = read_image_fingerprints(tmp_path / "new")
    assert (
        read.pixels is not None
        and traces.pixels is not None
        and (read.pixels == traces.pixels).all()
    )
    assert (
        read.labels is not None and read.labels.tolist() == [1, 0, 0] and read.classes == ["b", "ä"]
    )
    write_image_fingerprints(
        tmp_path / "old", ImageFingerprints(traces.train, traces.held_out, traces.names)
    )
    assert read_image_fingerprints(tmp_path / "old").pixels is None


def test_traces_whose_labels_do_not_fit_are_refused(tmp_path: Path) -> None:
    traces = make_traces(draw_noise_images([1, 2]), ["a", "b"])
    write_image_fingerprints(
        tmp_path / "one",
        ImageFingerprints(
            traces.train,
            traces.held_out,
            traces.names,
            traces.pixels,
            np.array([0, 2]),
            traces.classes,
        ),
    )
    with pytest.raises(ValueError, match="labels do not fit"):
        read_image_fingerprints(tmp_path / "one")


CONFLICT: BatchReport = {
    "conflicts": [{"paths": ["cat/1.png", "dog/2.png"], "labels": ["cat", "dog"]}],
    "conflicts_count": 1,
}


@pytest.mark.parametrize(
    "report",
    [
        {"conflicts": [], "conflicts_count": 0, "conflicts_policy": "reject"},
        {**CONFLICT, "conflicts_policy": "keep"},
        CONFLICT,  # of a release that had no policy
    ],
    ids=["none", "kept", "older"],
)
def test_a_batch_that_may_be_learned_is(report: BatchReport) -> None:
    contradictions.refuse_unaccepted_label_contradictions(report)


def test_a_rejection_names_both_images_and_what_to_do() -> None:
    report: BatchReport = {**CONFLICT, "conflicts_policy": "reject"}
    report["conflicts"] = [{**report["conflicts"][0], "task": 2}]
    with pytest.raises(Rejected) as raised:
        contradictions.refuse_unaccepted_label_contradictions(report)
    assert raised.value.detail == (
        "The same image has two classes: “cat/1.png” is “cat” in task 2 and “dog/2.png” is “dog”. "
        "What contradicts itself cannot be learned. Correct the batch and send it again; to learn "
        "it as it is, send it with ?conflicts=keep. Where task 2 had the wrong label, roll back to "
        "the version before it, discard it, and send it again with the right one (“Correct a "
        "label” in the how-tos)."
    )
    assert raised.value.extra["report"] is report
