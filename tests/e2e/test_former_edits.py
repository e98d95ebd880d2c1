"""A model that was edited before migration 0005 is edited, learned on and rolled back as any other.

`tests/migrations/data/make_edited_before.py` says what the data is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.edited import (
    create_corrected_model,
    create_learned_model,
    describe_newest_version,
    edit_model,
)
from tests.e2e.small import WEEKS, learn_batches, take_first_image
from tests.migrations import databases
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

TOLERANCE = 1e-6
"""Relative, of temperatures. They are found by steps on floating-point features; those of the former
data were computed by the processor of another machine, which rounds otherwise.
"""
MODEL, METHOD = "edited", {"name": "analytic", "projection": 16}
FORMER = databases.FORMER.parent / "edited_before_0005"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Rest]:
    """A client of the present service on the former data, which each test changes."""
    data = tmp_path / "data"
    url = databases.restore_former("sqlite", data, FORMER)
    databases.unpack_former("sqlite", data, FORMER)
    databases.move_times_to_today(url)
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_DEVICE": "cpu"}
    with service.run_temporary_service(data, settings) as found:
        yield Rest(found.url, found.key)


def assert_same(client: Rest, model: str, other: str) -> None:
    """Assert that two models are described alike: to the bit, except for the temperature."""
    found, expected = describe_newest_version(client, model), describe_newest_version(client, other)
    value = expected["temperature"].pop("value")
    assert found["temperature"].pop("value") == pytest.approx(value, rel=TOLERANCE)
    assert found == expected


def test_sums_that_a_former_edit_stored_again_are_read_as_they_are(client: Rest) -> None:
    # The new edit moves the classes of task 3 once more, whose sums the former edit stored.
    edit_model(client, MODEL, [{"merge": {"from": ["3"], "into": "1"}}])
    edit_model(client, MODEL, [{"relabel": {"task": 3, "image": 0, "label": "5"}}])
    other = create_corrected_model(client, MODEL, METHOD)
    for each in (MODEL, other):
        client.call("DELETE", f"/v1/models/{each}/tasks/2/data")
        learn_batches(client, each, WEEKS[3])
    assert_same(client, MODEL, other)


@pytest.mark.campaign  # the test above reads the same sums; test_edits.py undoes
def test_a_former_edit_is_undone_and_its_versions_predict(client: Rest) -> None:
    client.call("POST", f"/v1/models/{MODEL}/edits/1/undo")
    learn_batches(client, MODEL, WEEKS[3])
    plain = create_learned_model(client, METHOD, weeks=4)
    assert_same(client, MODEL, plain)
    image = take_first_image(WEEKS[2], "4")
    for version in (3, 4, 5):
        path = f"/v1/models/{MODEL}/versions/{version}/predict"
        answer = client.call("POST", path, files={"image": image}).json()
        assert answer["version"] == version
