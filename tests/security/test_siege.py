"""One owner attacks in every way at once, with a key that reads and one that writes; a neighbour is
refused nothing.
"""

from pathlib import Path

import pytest

from tests.security import siege

pytestmark = pytest.mark.campaign


def test_nothing_of_a_neighbours_is_refused_while_another_owner_attacks_in_every_way(
    tmp_path: Path,
) -> None:
    with siege.run_small_size(tmp_path) as (url, key):
        found = siege.measure_siege(siege.prepare_owners(url, key), 5.0, ("both",))
    for answers in found["both"].values():
        assert answers.statuses and answers.refused == 0
