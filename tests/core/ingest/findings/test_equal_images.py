"""Equal images: what is found is what comparing each image with each finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ingest.findings.equal_images import find_duplicates_and_label_conflicts

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans(), st.booleans()), max_size=14
)


@pytest.mark.slow
@given(ROWS)
def test_pairs_and_repeats_are_those_of_comparing_each_with_each(
    rows: list[tuple[int, int, bool, bool]],
) -> None:
    """Each row: its bytes, class, own test part, usable."""
    digests = np.array([[row[0]] * 16 for row in rows], np.uint8).reshape(-1, 16)
    labels = np.array([row[1] for row in rows], np.int64)
    test, good = (np.array([row[i] for row in rows], np.bool_) for i in (2, 3))
    found = find_duplicates_and_label_conflicts(digests, labels, test, good)
    duplicates, conflicts, repeated = [], [], [False] * len(rows)
    for i, row in enumerate(rows):
        before = [j for j in range(i) if good[j] and good[i] and rows[j][0] == row[0]]
        if not before:
            continue
        duplicates.append((i, before[0]))
        if all(rows[j][1] != row[1] for j in before):
            conflicts.append((before[0], i))
        repeated[i] = any(rows[j][1:3] == row[1:3] for j in before)
    assert found.duplicates == duplicates
    assert found.conflicts == conflicts
    assert found.repeated.tolist() == repeated
