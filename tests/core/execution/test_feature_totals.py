"""Totals of a model: of its newest version alone, derived, and gone with what they were derived
from.
"""

import hashlib
import json
from typing import Any

import pytest
from sqlalchemy.orm import Session

from core.database.tables import Model
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.models import memory
from core.publishing.publish import publish_or_hold_job_result
from core.retention import references
from core.tasks.tasks import delete_task_data
from core.usage import usage_sums
from tests.core.desk import Desk

METHOD: dict[str, Any] = {"name": "analytic", "hyper": {}, "state": {}}


def publish_version(desk: Desk, model: str, **values: Any) -> str:
    """Publish the next version with sums, features and totals, and return the digest of the
    totals.
    """
    _, claim = desk.begin(model, recipe={"method": {"name": "analytic"}, "seed": 0}, **values)
    number = claim.task_number or 0
    parts = {f"statistics.{number}": f"sums {number}", f"features.{number}": f"features {number}"}
    result = desk.result(
        {"head": f"h{number}", **parts},
        [("new", number, 1, 2)],
        method=METHOD,
        totals="totals.safetensors",
    )
    content = f"{model} up to {number}"
    (result / "totals.safetensors").write_text(content)
    publish_or_hold_job_result(desk.db, desk.store, claim, result)
    return hashlib.sha256(content.encode()).hexdigest()


def list_inherited_parts(desk: Desk, model: str, method: str = "analytic") -> list[str]:
    """Return the names of the parts, except the head, that the model's next job reads."""
    desk.submit(model, recipe={"method": {"name": method}, "seed": 0})
    claim = desk.claim()
    path = fetch_job_inputs_and_write_spec(
        desk.db, desk.store, claim, desk.settings, desk.folder / claim.job_id
    )
    return [part["name"] for part in json.loads(path.read_text())["parent"]["parts"]][1:]


ALL = ["statistics.2", "features.2", "statistics.1", "features.1"]


def test_a_job_that_continues_the_newest_version_reads_totals_in_place_of_all_parts(
    desk: Desk,
) -> None:
    model = desk.model()
    first, second = publish_version(desk, model), publish_version(desk, model)
    assert list_inherited_parts(desk, model) == ["totals"]
    assert desk.blobs.has(second) and not desk.blobs.has(first)


@pytest.mark.parametrize("change", ["rolled back", "another method", "damaged", "held"])
def test_of_any_other_version_or_for_another_method_it_reads_the_parts(
    desk: Desk, change: str
) -> None:
    model = desk.model(on_held="continue")
    publish_version(desk, model)
    if change == "held":
        publish_version(desk, model, gate={"min_new_task": 0.9})
        assert list_inherited_parts(desk, model) == [
            "totals"
        ]  # of version 1, which the next job continues
        return
    digest = publish_version(desk, model)
    if change == "rolled back":
        desk.roll_back(model)
        assert list_inherited_parts(desk, model) == ["statistics.1", "features.1"]
    elif change == "another method":
        assert list_inherited_parts(desk, model, "finetune") == ALL
    else:
        desk.store.put_bytes(desk.blobs.make_blob_key(digest), b"rot")
        assert list_inherited_parts(desk, model) == ALL


@pytest.mark.both_databases
def test_totals_count_as_bytes_of_versions_and_replace_each_other(desk: Desk) -> None:
    def sum_version_bytes(session: Session) -> int:
        return usage_sums.sum_usage_by_model(session, Model.id == model)[model]["bytes"]["versions"]

    model = desk.model()
    first = publish_version(desk, model)
    second = publish_version(desk, model)
    with desk.db.read() as session:
        row = session.get_one(Model, model)
        assert row.totals_sha256 == second and row.totals_bytes
        assert references.find_digests_still_in_use(session, [first, second]) == {second}
        before = sum_version_bytes(session)
    desk.change(Model, model, totals_sha256=None, totals_bytes=None)
    with desk.db.read() as session:
        assert before - sum_version_bytes(session) == row.totals_bytes


@pytest.mark.parametrize("deleted", ["task", "memory"])
def test_totals_go_with_what_they_were_derived_from(desk: Desk, deleted: str) -> None:
    model = desk.model()
    digest = [publish_version(desk, model) for _ in range(2)][-1]
    if deleted == "task":
        delete_task_data(desk.db, desk.store, desk.blobs, desk.actor, model, 1)
        assert list_inherited_parts(desk, model) == ["statistics.2", "features.2", "statistics.1"]
    else:
        memory.delete_replay_memory(desk.db, desk.store, desk.blobs, desk.actor, model)
        assert list_inherited_parts(desk, model) == ["statistics.2", "statistics.1"]
    assert not desk.blobs.has(digest)
