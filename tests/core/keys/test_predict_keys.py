"""Keys of scope predict on both databases: requests at the same moment take no more than
there is.
"""

import asyncio
import threading
from typing import Any

import pytest

from core.database.polling import PollingDatabaseReads
from core.database.session import Database
from core.database.tables import AccessKey, Owner, PredictKeyBindingRow
from core.errors import TooManyRequests
from core.keys import predict_keys
from tests.core.rows import make_model_row

pytestmark = pytest.mark.both_databases
PREFIX = "abcdefghijkl"


@pytest.fixture
def make_key(database: Database) -> Any:
    """Makes the key with limits of its own."""

    def make_predict_key(**limits: Any) -> str:
        with database.write() as session:
            session.add(Owner(id="own_1", name="o", created_at=0.0))
            session.flush()
            session.add(make_model_row("mdl_1", "own_1", next_version=1, next_task=1))
            named = {
                "name": "k",
                "prefix": PREFIX,
                "hash": "0" * 64,
                "scope": "predict",
                "created_at": 0.0,
            }
            session.add(AccessKey(id="key_1", owner_id="own_1", **named))
            session.flush()
            usual = {"requests_per_s": 5.0, "images_per_day": 1000}
            session.add(
                PredictKeyBindingRow(
                    key_id="key_1", model_id="mdl_1", alias="production", **{**usual, **limits}
                )
            )
        return "key_1"

    return make_predict_key


def count_granted_at_once(database: Database, key: str, threads: int, images: int) -> int:
    """Return how many of some simultaneous requests are granted."""
    results: list[bool] = []
    together = threading.Barrier(threads)

    def charge_daily_images() -> None:
        together.wait()
        try:
            predict_keys.charge_predict_key_daily_images(database, key, images, is_request=True)
            results.append(True)
        except TooManyRequests as error:
            assert error.retry_after_s is not None and error.retry_after_s >= 1
            results.append(False)

    running = [threading.Thread(target=charge_daily_images) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(results) == threads
    return sum(results)


@pytest.mark.parametrize(
    ("limits", "images", "granted"),
    [({"requests_per_s": 100.0, "images_per_day": 20}, 3, 6), ({"requests_per_s": 0.01}, 1, 1)],
)
def test_requests_at_once_take_no_more_than_there_is(
    database: Database, make_key: Any, limits: dict[str, Any], images: int, granted: int
) -> None:
    key = make_key(**limits)
    assert count_granted_at_once(database, key, 8, images) == granted
    with database.read() as session:
        row = session.get_one(PredictKeyBindingRow, key)
        assert (
            row.images == granted * images
            and row.day == database.now(session) // predict_keys.DAY_S
        )


def test_a_lookup_tells_what_the_key_is_bound_to(database: Database, make_key: Any) -> None:
    make_key()

    async def look_up() -> Any:
        reads = PollingDatabaseReads(database.url)
        try:
            return await reads.find_key_by_prefix(PREFIX)
        finally:
            await reads.close()

    row = asyncio.run(look_up())
    assert (row.scope, row.model_id, row.model_name, row.alias) == (
        "predict",
        "mdl_1",
        "birds",
        "production",
    )


def test_a_key_that_is_gone_takes_nothing(database: Database) -> None:
    with pytest.raises(TooManyRequests):
        predict_keys.charge_predict_key_daily_images(database, "key_none", 1, is_request=True)
