"""Unusual conditions on real services: each gives a clear message, and no data is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import odd_conditions

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def seed() -> Iterator[Path]:
    """Return a data directory of a service that has run."""
    with odd_conditions.make_seed_folder() as found:
        yield found


@pytest.mark.parametrize("name", odd_conditions.CONDITIONS)
def test_an_odd_condition_is_told_in_a_sentence(seed: Path, name: str) -> None:
    assert odd_conditions.CONDITIONS[name](seed)
