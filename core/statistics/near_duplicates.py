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

from collections.abc import Callable, Iterator, Sequence
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
# Hashes that differ in at most 7 bits are equal in at least one of 8 bands.
BANDS, BAND_BITS = 8, 16
COMPARISONS = 1 << 28
"""Most comparisons of hashes in one search: some seconds."""
_UNEQUAL = 1 << 40
"""Added to the rank of a row whose hash is near but not equal."""
_MARGIN = 1.0
"""Grey levels of 256 by which a pixel must be brighter than its neighbour."""
# Brightness of red, green and blue by ITU-R BT.601.
_GREY = np.array([0.299, 0.587, 0.114], np.float32)
_CHUNK = 2048
_SHORT, _LONG = 8, 9


@dataclass(frozen=True)
class NearDuplicateMatches:
    """Result of a search for near-duplicate images: the row that each image nearly repeats.

    Attributes:
        near: int64 [N], for each row the row that it nearly repeats; −1 for none.
        complete: whether no pair was missed.
    """

    near: Rows
    complete: bool


def hash_images_perceptually(images: _Images) -> Hashes:
    """Compute perceptual hashes uint64 [N, 2] of images uint8 [N, S, S, C], C 1 or 3."""
    parts = [
        _compute_perceptual_hashes(images[at : at + _CHUNK]) for at in range(0, len(images), _CHUNK)
    ]
    return np.concatenate([np.zeros((0, 2), np.uint64), *parts])


def compute_hamming_distances(first: Hashes, second: Hashes) -> npt.NDArray[np.uint8]:
    """Compute the Hamming distance of hashes [..., 2]: the number of differing bits, as uint8
    [...].
    """
    return np.bitwise_count(first ^ second).sum(-1, dtype=np.uint8)  # type: ignore[no-any-return]


def find_near_duplicates_within(hashes: Hashes) -> NearDuplicateMatches:
    """Find for each image an earlier near duplicate in the same set of images."""
    near = np.full(len(hashes), -1, np.int64)
    distinct, first, group = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
    # Releases of NumPy differ in the shape of the inverse along an axis.
    group = group.reshape(-1)
    equal = first[group] < np.arange(len(hashes))
    near[equal] = first[group][equal]
    left, right, complete = _find_near_pairs(distinct)
    early, late = np.minimum(first[left], first[right]), np.maximum(first[left], first[right])
    order = np.lexsort((early, late))
    late, early = late[order], early[order]
    _, at = np.unique(late, return_index=True)
    near[late[at]] = early[at]
    return NearDuplicateMatches(near, complete)


def find_near_duplicates_between(hashes: Hashes, earlier: Hashes) -> NearDuplicateMatches:
    """Find for each image a near duplicate among other, `earlier` images."""
    return find_near_duplicates_against_each_group(hashes, [earlier])[0]


def find_near_duplicates_against_each_group(
    new_hashes: Hashes, groups: Sequence[Hashes]
) -> list[NearDuplicateMatches]:
    """Find for each image a near duplicate in each of several groups of images, in one search.

    Args:
        new_hashes: hashes [N, 2].
        groups: hashes [M, 2] of each group.

    Returns:
        For each group its rows: the first with an equal hash, or else the first of all.
    """
    distinct, inverse = np.unique(new_hashes, axis=0, return_inverse=True)
    sizes = [len(group) for group in groups]
    begins = np.cumsum([0, *sizes])[:-1]
    group_of = np.repeat(np.arange(len(groups)), sizes)
    earlier = np.concatenate([distinct[:0], *groups])
    # Few of a large past are similar to any image of a small batch.
    candidates = find_rows_with_common_hash_band(earlier, distinct)
    group_of = group_of[candidates]
    hashes = np.concatenate([distinct, earlier[candidates]])
    is_new = np.arange(len(hashes)) < len(distinct)
    none = 2 * _UNEQUAL
    best = np.full((len(groups), len(distinct)), none, np.int64)

    def record_nearest_pairs(new: Rows, old: Rows) -> None:
        group = group_of[old - len(distinct)]
        rank = candidates[old - len(distinct)] - begins[group]
        rank[(hashes[new] != hashes[old]).any(1)] += _UNEQUAL
        # `at`, because a row may occur several times, of which an assignment keeps the last.
        np.minimum.at(best, (group, new), rank)

    def record_pairs_by_new_and_old(first: Rows, second: Rows) -> None:
        swap = first >= len(distinct)
        record_nearest_pairs(np.where(swap, second, first), np.where(swap, first, second))

    complete = _call_with_near_duplicate_pairs(hashes, is_new, ~is_new, record_pairs_by_new_and_old)
    near = np.where(best < none, best % _UNEQUAL, -1)[:, inverse.reshape(-1)]
    return [NearDuplicateMatches(rows, complete) for rows in near]


def group_near_duplicate_hashes(hashes: Hashes) -> Rows:
    """Group near-duplicate images, directly or through others: a group number per image, int64 [N].

    Frames of one burst are one group although the first and the last may differ by more than
    `MOST_BITS`.
    """
    distinct, inverse = np.unique(hashes, axis=0, return_inverse=True)
    left, right, _ = _find_near_pairs(distinct)
    number = np.arange(len(distinct))
    while not np.array_equal(number[left], number[right]):
        # Each group takes the smallest number at either end of a pair, until nothing changes.
        smallest = np.minimum(number[left], number[right])
        for ends in (left, right):
            # join the whole group of an end, not the end alone
            np.minimum.at(number, number[ends], smallest)
        number = number[number]
    while not np.array_equal(number, number[number]):
        number = number[number]
    return number[inverse.reshape(-1)]


def find_near_duplicates_with_other_label(
    hashes: Hashes, labels: Rows, earlier: Hashes | None = None, earlier_labels: Rows | None = None
) -> list[tuple[int, int]]:
    """Find images with a near duplicate under another label.

    Args:
        hashes: hashes of the batch [N, 2].
        labels: int64 [N], the label of each.
        earlier: hashes of other images [M, 2]; None compares the batch with itself.
        earlier_labels: int64 [M], their labels.

    Returns:
        At most one pair for each image, rising: (row of `earlier`, or an earlier row of `hashes`;
            row of `hashes`).
    """
    old, old_labels = np.zeros((0, 2), np.uint64), np.zeros(0, np.int64)
    candidates = old_labels
    if earlier is not None and earlier_labels is not None:
        # Few of a large past are similar to any image of a small batch.
        candidates = find_rows_with_common_hash_band(earlier, hashes)
        old, old_labels = earlier[candidates], earlier_labels[candidates]
    both = np.concatenate([old, hashes])
    numbers = np.concatenate([old_labels, labels])
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

    def record_smaller_partners(left_rows: Rows, right_rows: Rows) -> None:
        np.minimum.at(partner, left_rows, first[right_rows])
        np.minimum.at(partner, right_rows, first[left_rows])

    _call_with_near_duplicate_pairs(
        both[first], left, right, record_smaller_partners, numbers[first]
    )
    before = partner[group.reshape(-1)]
    rows = np.flatnonzero((before < np.arange(len(both))) & ~is_old)
    # Without earlier images, a partner is a row of the batch itself.
    partners = before[rows] if earlier is None else candidates[before[rows]]
    return list(zip(partners.tolist(), (rows - len(old)).tolist(), strict=True))


def find_rows_with_common_hash_band(hashes: Hashes, other_hashes: Hashes) -> Rows:
    """Find the rows of `hashes` that share a band of bits with any of `other_hashes`, which may be near
    duplicates.

    All others are no near duplicates of these.
    """
    shares = np.zeros(len(hashes), np.bool_)
    for key, other_key in zip(
        _iterate_hash_band_values(hashes), _iterate_hash_band_values(other_hashes), strict=True
    ):
        is_present = np.zeros(1 << BAND_BITS, np.bool_)
        is_present[other_key] = True
        shares |= is_present[key]
    return np.flatnonzero(shares)


def _iterate_hash_band_values(hashes: Hashes) -> Iterator[Rows]:
    """Yield the value of each band of bits of perceptual hashes, [N]."""
    for band in range(BANDS):
        word, at = divmod(band * BAND_BITS, 64)
        key = (hashes[:, word] >> np.uint64(at)) & np.uint64((1 << BAND_BITS) - 1)
        yield key.astype(np.int64)


def _compute_perceptual_hashes(images: _Images) -> Hashes:
    pixels = images.astype(np.float32)
    grey = pixels @ _GREY if images.shape[-1] == 3 else pixels[..., 0]
    size = images.shape[1]
    rows = (
        _build_area_averaging_matrix(size, _SHORT)
        @ grey
        @ _build_area_averaging_matrix(size, _LONG).T
    )
    columns = (
        _build_area_averaging_matrix(size, _LONG)
        @ grey
        @ _build_area_averaging_matrix(size, _SHORT).T
    )
    bits = (rows[:, :, 1:] - rows[:, :, :-1] > _MARGIN, columns[:, 1:] - columns[:, :-1] > _MARGIN)
    # Big endian, so that stored hashes are the same on every machine.
    packed = [np.packbits(part.reshape(len(images), -1), axis=1).view(">u8") for part in bits]
    return np.concatenate(packed, axis=1).astype(np.uint64)


@cache
def _build_area_averaging_matrix(size: int, to: int) -> npt.NDArray[np.float32]:
    """Build the matrix [to, size] that shrinks a row of pixels by averaging areas."""
    edges = np.arange(to + 1) * size / to
    low, high = (
        np.maximum(edges[:-1, None], np.arange(size)),
        np.minimum(edges[1:, None], np.arange(size) + 1),
    )
    shares = np.maximum(high - low, 0)
    return np.asarray(shares / shares.sum(1, keepdims=True), np.float32)


def _find_near_pairs(hashes: Hashes) -> tuple[Rows, Rows, bool]:
    """Find all pairs of near duplicates among distinct perceptual hashes.

    The last value of the result is True if no pair was missed.
    """
    firsts, seconds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]

    def collect_pairs(first: Rows, second: Rows) -> None:
        firsts.append(first)
        seconds.append(second)

    everything = np.ones(len(hashes), np.bool_)
    complete = _call_with_near_duplicate_pairs(hashes, everything, everything, collect_pairs)
    return np.concatenate(firsts), np.concatenate(seconds), complete


def _call_with_near_duplicate_pairs(
    hashes: Hashes,
    left: npt.NDArray[np.bool_],
    right: npt.NDArray[np.bool_],
    visit: Callable[[Rows, Rows], None],
    labels: Rows | None = None,
) -> bool:
    """Call `visit` with each pair of near-duplicate hashes, some pairs at a time.

    Args:
        hashes: hashes [N, 2].
        left: bool [N], the rows that one of a pair may be.
        right: bool [N], the rows that the other of a pair may be: all, as `left`, or none of those.
        visit: takes the rows of both, int64 [K] each, K < N. A pair that has several bands in
            common is visited several times.
        labels: int64 [N]; pairs of one label are neither compared nor visited. None visits all.

    Returns:
        True if no pair was missed.
    """
    iter_pairs = (
        _iterate_row_pairs_of_equal_keys
        if left.all() and right.all()
        else _iterate_left_right_pairs_with_equal_key
    )
    complete = True
    for key in _iterate_hash_band_values(hashes):
        # A pair with several bands in common comes up once for each of them.
        for pairs in iter_pairs(key, left, right):
            if pairs is None:
                complete = False
                break
            first, second = pairs
            if labels is not None:
                differ = labels[first] != labels[second]
                first, second = first[differ], second[differ]
            near = compute_hamming_distances(hashes[first], hashes[second]) <= MOST_BITS
            visit(first[near], second[near])
    return complete


_Pairs = Iterator[tuple[Rows, Rows] | None]
"""Pairs of rows to compare, some at a time; None, at the end, where `COMPARISONS` cuts them off."""


def _iterate_row_pairs_of_equal_keys(key: Rows, *_: npt.NDArray[np.bool_]) -> _Pairs:
    """Yield all pairs of rows with the same key, given keys [N] of one hash band."""
    window = max(1, COMPARISONS // (BANDS * max(1, len(key))))
    order = np.argsort(key, kind="stable")
    key = key[order]
    same = np.arange(len(order))
    for step in range(1, len(order)):
        # Keys are sorted: only rows that share one with the row before this step can go on.
        same = same[same + step < len(order)]
        same = same[key[same + step] == key[same]]
        if not same.size:
            return
        if step > window:
            yield None
            return
        yield order[same], order[same + step]


def _iterate_left_right_pairs_with_equal_key(
    key: Rows, left: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]
) -> _Pairs:
    """Yield pairs of rows with the same key: one of `left`, the other of `right`.

    Args:
        key: int64 [N], key of each row.
        left, right: masks of rows, bool [N].
    """
    sizes = [np.bincount(key[side], minlength=1 << BAND_BITS) for side in (left, right)]
    # A small batch shares few keys with a large past; only rows with a shared key are looked at.
    is_shared = ((sizes[0] > 0) & (sizes[1] > 0))[key]
    # Each step pairs all rows of one side with one more row of the other: few steps are quick.
    is_right_denser = sizes[1].max() > sizes[0].max()
    denser_side, sparser_side = (right, left) if is_right_denser else (left, right)
    counts = sizes[0] if is_right_denser else sizes[1]
    rows, partners = (
        np.flatnonzero(denser_side & is_shared),
        np.flatnonzero(sparser_side & is_shared),
    )
    partners = partners[np.argsort(key[partners], kind="stable")]
    first = np.searchsorted(key[partners], key[rows])
    window = max(1, COMPARISONS // (BANDS * max(1, len(rows))))
    for step in range(int(counts.max(initial=0))):
        more = counts[key[rows]] > step
        rows, first = rows[more], first[more]
        if not rows.size:
            return
        if step >= window:
            yield None
            return
        yield rows, partners[first + step]
