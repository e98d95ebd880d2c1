"""Selection of held-out images for archives without a test part.

Within each class, the images are ordered by a keyed hash of their bytes, and the first ones are
held out. This is a pure function of the archive and the seed, independent of any library's random
generator.
"""

import hashlib

import numpy as np
import numpy.typing as npt


def held_out_of(
    labels: npt.NDArray[np.int64], digests: npt.NDArray[np.uint8], share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Return [N] booleans, true for held-out rows, stratified by label.

    Args:
        labels: int64 [N].
        digests: uint8 [N, 16], of the images.
        share: share in [0, 1).
        seed: key of the hash.

    A class of n ≥ 2 images gives max(1, round(share·n)) of them, at most n − 1. A class of one
    image gives none; share 0 gives none.
    """
    chosen = np.zeros(len(labels), np.bool_)
    if share <= 0:
        return chosen
    key = seed.to_bytes(16, "little", signed=True)
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    for rows in np.split(order, bounds):
        # Adding a half rounds it up; round() would go to the even number.
        held_out = min(max(1, int(share * len(rows) + 0.5)), len(rows) - 1)
        if held_out > 0:
            # The row decides between equal images, whose digests are equal.
            ranked = sorted(
                (hashlib.blake2b(digests[row].tobytes(), digest_size=8, key=key).digest(), int(row))
                for row in rows
            )
            chosen[[row for _, row in ranked[:held_out]]] = True
    return chosen
