"""Images of a batch with equal bytes or digests: duplicates, contradicting labels, dropped images.

Equality refers to the bytes of the file as sent (of the row, in an npz), not to the pixels. The
same photo saved twice is two images.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.contract.reports.report import ByteIdenticalImages
from core.ingest.limits import REPORT_FILES

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EqualImageRows:
    """Rows of images in a batch that have equal bytes: duplicates, and contradicting labels.

    Attributes:
        duplicates: (a row, the first row with the same bytes).
        conflicts: (the first row with these bytes, the first one with them and another class), a
            pair for each further class.
        repeated: [N], true for rows after an earlier one with the same bytes, class and part.
    """

    duplicates: list[tuple[int, int]]
    conflicts: list[tuple[int, int]]
    repeated: npt.NDArray[np.bool_]


def find_duplicates_and_label_conflicts(
    digests: npt.NDArray[np.uint8],
    labels: _Rows,
    test: npt.NDArray[np.bool_],
    good: npt.NDArray[np.bool_],
) -> EqualImageRows:
    """Find images of a batch with equal digests, and contradictions among their labels.

    Args:
        digests: uint8 [N, 16].
        labels: int64 [N].
        test: [N], true for the archive's own test part.
        good: [N], true for usable images.
    """
    rows = np.flatnonzero(good)
    repeated = np.zeros(len(good), np.bool_)
    # Without rows, the greatest label in `_find_first_row_of_each_group_and_label` does not exist.
    if not rows.size:
        return EqualImageRows([], [], repeated)
    # As raw bytes (V), because strings (S) ignore zeros at the end.
    keys = np.ascontiguousarray(digests[rows]).view(f"V{digests.shape[1]}").ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    first_of = rows[first[group]]  # per row, the first row with its bytes
    later = first_of != rows
    duplicates = list(zip(rows[later].tolist(), first_of[later].tolist(), strict=True))
    at = _find_first_row_of_each_group_and_label(group, labels[rows])  # one row per bytes and class
    at = at[later[at]]
    conflicts = list(zip(first_of[at].tolist(), rows[at].tolist(), strict=True))
    repeated[rows] = True
    # By part as well: an image of both parts stays in both, and
    # `add_held_out_in_training_warning` warns of it.
    repeated[
        rows[_find_first_row_of_each_group_and_label(group, 2 * labels[rows] + test[rows])]
    ] = False
    return EqualImageRows(duplicates, conflicts, repeated)


def build_duplicate_report(
    equal: EqualImageRows, names: Callable[[int], str], classes: list[str], labels: _Rows
) -> ByteIdenticalImages:
    """Return the batch report's fields about images with equal bytes."""
    return {
        "duplicates": len(equal.duplicates),
        "duplicate_paths": [
            {"path": names(row), "same_as": names(first)}
            for row, first in equal.duplicates[:REPORT_FILES]
        ],
    }


def _find_first_row_of_each_group_and_label(group: _Rows, labels: _Rows) -> _Rows:
    """Return the index of the first row of each distinct pair (group, label), in rising order."""
    pairs = group.astype(np.int64) * (int(labels.max()) + 1) + labels
    _, first = np.unique(pairs, return_index=True)
    return np.sort(first).astype(np.int64)
