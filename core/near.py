"""Near duplicates: images that look the same although their bytes differ.

Examples are a photo saved again or resized. Each image has a difference hash of 128 bits (dHash,
Krawetz 2013). The decoded image is reduced to grey at 9 × 8 and at 8 × 9 pixels. Each bit says
whether a pixel's right (or lower) neighbour is brighter by more than a grey level, so that noise in
plain areas has no effect. Two images are near duplicates if their hashes differ in at most
`MOST_BITS` bits. docs/benchmarks.md has the numbers of re-encoded copies and of unrelated images
that this finds.

The search is never quadratic. Two hashes of 8 bands of 16 bits that differ in at most 7 bits have a
band in common (pigeonhole principle). For each band, hashes are therefore sorted with that band
first, and each is compared with its successors. `COMPARISONS` limits the number of successors.
Every pair is found as long as no more hashes than that share a band, and `complete` says whether
that was the case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
"""[N, 2]: the bits of rows, then those of columns."""
Rows = npt.NDArray[np.int64]
_Images = npt.NDArray[np.uint8]

MOST_BITS = 7
"""Most bits, of 128, in which hashes of near duplicates differ."""
BANDS, BAND_BITS = 8, 16
COMPARISONS = 1 << 28
"""Most comparisons of hashes in one search: some seconds."""
_MARGIN = 1.0
"""Grey levels of 256 by which a pixel must be brighter than its neighbour."""
_GREY = np.array([0.299, 0.587, 0.114], np.float32)
_CHUNK = 2048
_SHORT, _LONG = 8, 9


@dataclass(frozen=True)
class Found:
    """Result of a search for near duplicates.

    Attributes:
        near: int64 [N], for each row the row that it nearly repeats; −1 for none.
        complete: whether no pair was missed.
    """

    near: Rows
    complete: bool


def hash_images(images: _Images) -> Hashes:
    """Return the hashes uint64 [N, 2] of images uint8 [N, S, S, C], C 1 or 3."""
    parts = [_hash_chunk(images[at : at + _CHUNK]) for at in range(0, len(images), _CHUNK)]
    return np.concatenate([np.zeros((0, 2), np.uint64), *parts])


def hamming_distances(one: Hashes, other: Hashes) -> npt.NDArray[np.uint8]:
    """Return the number of bits in which hashes [..., 2] differ, as uint8 [...]."""
    return np.bitwise_count(one ^ other).sum(-1, dtype=np.uint8)  # type: ignore[no-any-return]


def find_duplicates_within(found: Hashes) -> Found:
    """Find for each image an earlier near duplicate: `near` has a smaller row than its own."""
    near = np.full(len(found), -1, np.int64)
    distinct, first, group = np.unique(found, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    equal = first[group] < np.arange(len(found))
    near[equal] = first[group][equal]
    every = np.ones(len(distinct), np.bool_)
    one, partner, complete = _find_pairs(distinct, every, every)
    early, late = np.minimum(first[one], first[partner]), np.maximum(first[one], first[partner])
    order = np.lexsort((early, late))
    late, early = late[order], early[order]
    _, at = np.unique(late, return_index=True)
    near[late[at]] = early[at]
    return Found(near, complete)


def find_duplicates_between(found: Hashes, earlier: Hashes) -> Found:
    """Find for each image of `found` a near duplicate in `earlier`: `near` has its row there."""
    near = np.full(len(found), -1, np.int64)
    both = np.concatenate([earlier, found])
    distinct, group = np.unique(both, axis=0, return_inverse=True)
    group = group.reshape(-1)
    old, new = group[: len(earlier)], group[len(earlier) :]
    # The first row of each hash among the earlier ones, −1 if it has none.
    row_of = np.full(len(distinct), -1, np.int64)
    row_of[old[::-1]] = np.arange(len(earlier))[::-1]
    is_new = np.zeros(len(distinct), np.bool_)
    is_new[new] = True
    nearest = row_of.copy()
    one, other, complete = _find_pairs(distinct, row_of >= 0, is_new)
    for a, b in ((one, other), (other, one)):
        take = (nearest[a] < 0) & (row_of[b] >= 0)
        nearest[a[take][::-1]] = row_of[b[take][::-1]]
    near[:] = nearest[new]
    return Found(near, complete)


def group_duplicates(found: Hashes) -> Rows:
    """Return the same number for images that are near duplicates, directly or through others, int64
    [N].

    Frames of one burst are one group although the first and the last may differ by more than
    `MOST_BITS`.
    """
    distinct, of = np.unique(found, axis=0, return_inverse=True)
    every = np.ones(len(distinct), np.bool_)
    one, other, _ = _find_pairs(distinct, every, every)
    number = np.arange(len(distinct))
    while not np.array_equal(number[one], number[other]):
        smallest = np.minimum(number[one], number[other])
        for ends in (one, other):
            # join the whole group of an end, not the end alone
            np.minimum.at(number, number[ends], smallest)
        number = number[number]
    while not np.array_equal(number, number[number]):
        number = number[number]
    return number[of.reshape(-1)]


def find_contradictions(
    found: Hashes, labels: Rows, earlier: Hashes | None = None, earlier_labels: Rows | None = None
) -> list[tuple[int, int]]:
    """Find images with a near duplicate under another label.

    Args:
        found: hashes of the batch [N, 2].
        labels: int64 [N], the label of each.
        earlier: hashes of other images [M, 2]; None compares the batch with itself.
        earlier_labels: int64 [M], their labels.

    Returns:
        At most one pair for each image, rising: (row of `earlier`, or an earlier row of `found`;
            row of `found`).
    """
    old = np.zeros((0, 2), np.uint64) if earlier is None else earlier
    both = np.concatenate([old, found])
    numbers = np.concatenate(
        [np.zeros(0, np.int64) if earlier_labels is None else earlier_labels, labels]
    )
    is_old = np.arange(len(both)) < len(old)
    # One representative of each hash, label and side: others of the same kind have the same
    # partners.
    kinds = np.column_stack([both, numbers.astype(np.uint64), is_old.astype(np.uint64)])
    _, first, group = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    everything = np.ones(len(first), np.bool_)
    left, right = (everything, everything) if earlier is None else (is_old[first], ~is_old[first])
    # The first row that contradicts each kind. A burst has a number of pairs that is quadratic in
    # its frames, so no list of pairs is kept.
    partner = np.full(len(first), len(both), np.int64)

    def take_smaller(one: Rows, other: Rows) -> None:
        partner[one] = np.minimum(partner[one], first[other])
        partner[other] = np.minimum(partner[other], first[one])

    _visit_pairs(both[first], left, right, take_smaller, numbers[first])
    before = partner[group.reshape(-1)]
    rows = np.flatnonzero((before < np.arange(len(both))) & ~is_old)
    return [(int(before[row]), int(row) - len(old)) for row in rows]


def _hash_chunk(images: _Images) -> Hashes:
    pixels = images.astype(np.float32)
    grey = pixels @ _GREY if images.shape[-1] == 3 else pixels[..., 0]
    size = images.shape[1]
    rows = _build_area_matrix(size, _SHORT) @ grey @ _build_area_matrix(size, _LONG).T
    columns = _build_area_matrix(size, _LONG) @ grey @ _build_area_matrix(size, _SHORT).T
    bits = (rows[:, :, 1:] - rows[:, :, :-1] > _MARGIN, columns[:, 1:] - columns[:, :-1] > _MARGIN)
    packed = [np.packbits(part.reshape(len(images), -1), axis=1).view(">u8") for part in bits]
    return np.concatenate(packed, axis=1).astype(np.uint64)


@cache
def _build_area_matrix(size: int, to: int) -> npt.NDArray[np.float32]:
    """Return the matrix [to, size] that averages the area covered by each new pixel."""
    edges = np.arange(to + 1) * size / to
    low, high = (
        np.maximum(edges[:-1, None], np.arange(size)),
        np.minimum(edges[1:, None], np.arange(size) + 1),
    )
    shares = np.maximum(high - low, 0)
    return np.asarray(shares / shares.sum(1, keepdims=True), np.float32)


def _find_pairs(
    found: Hashes, left: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]
) -> tuple[Rows, Rows, bool]:
    """Find the pairs of near duplicates among distinct hashes, one of `left` and one of `right`.

    The last value of the result is True if no pair was missed.
    """
    ones, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]

    def collect_pairs(one: Rows, other: Rows) -> None:
        ones.append(one)
        others.append(other)

    complete = _visit_pairs(found, left, right, collect_pairs)
    return np.concatenate(ones), np.concatenate(others), complete


def _visit_pairs(
    found: Hashes,
    left: npt.NDArray[np.bool_],
    right: npt.NDArray[np.bool_],
    visit: Callable[[Rows, Rows], None],
    labels: Rows | None = None,
) -> bool:
    """Call `visit` with each pair of near duplicates, some pairs at a time.

    Args:
        found: hashes [N, 2].
        left: bool [N], the rows that one of a pair may be.
        right: bool [N], the rows that the other of a pair may be.
        visit: takes the rows of both, int64 [K] each, K < N; no row occurs twice in either. A pair
            that has several bands in common is visited several times.
        labels: int64 [N]; pairs of one label are neither compared nor visited. None visits all.

    Returns:
        True if no pair was missed.
    """
    complete = True
    window = max(1, COMPARISONS // (BANDS * max(1, len(found))))
    for band in range(BANDS):
        word, at = divmod(band * BAND_BITS, 64)
        key = (found[:, word] >> np.uint64(at)) & np.uint64((1 << BAND_BITS) - 1)
        order = np.lexsort((found[:, 1 - word], key))
        key, ordered = key[order], found[order]
        for step in range(1, len(found)):
            same = np.flatnonzero(key[step:] == key[:-step])
            if not same.size:
                break
            if step > window:
                complete = False
                break
            if labels is not None:
                same = same[labels[order[same]] != labels[order[same + step]]]
            near = same[hamming_distances(ordered[same], ordered[same + step]) <= MOST_BITS]
            one, other = order[near], order[near + step]
            is_across = (left[one] & right[other]) | (right[one] & left[other])
            visit(one[is_across], other[is_across])
    return complete
