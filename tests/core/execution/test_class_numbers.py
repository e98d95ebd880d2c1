"""Numbers of classes in the parts that a job continues, after edits of the line."""

import hashlib
import json
from typing import Any

import pytest
from sqlalchemy import select

from core.database.tables import Edit, Version, VersionPart
from core.execution.feature_totals import digest_version_parts_in_feature_totals
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.ids import new_id
from core.lineage.class_numbers import AS_STORED, AncestorClassNumberMaps
from core.publishing.publish import publish_or_hold_job_result
from tests.core.desk import Desk

METHOD: dict[str, Any] = {"name": "analytic", "hyper": {}, "state": {}}


def publish_version(
    desk: Desk, model: str, parts: tuple[str, ...] = ("statistics", "features")
) -> int:
    """Publish the next version and return its number."""
    _, claim = desk.begin(model, recipe={"method": {"name": "analytic"}, "seed": 0})
    number = claim.task_number or 0
    named = {f"{kind}.{number}": f"{kind} {number}" for kind in parts}
    result = desk.result({"head": f"h{number}", **named}, [("new", number, 1, 2)], method=METHOD)
    return publish_or_hold_job_result(desk.db, desk.store, claim, result).number


def change_version(desk: Desk, model: str, number: int, **values: Any) -> None:
    """Change the row of a version."""
    with desk.db.write() as session:
        query = select(Version).where(Version.model_id == model, Version.number == number)
        version = session.scalars(query).one()
        for name, value in values.items():
            setattr(version, name, value)


def read_parent_from_spec(desk: Desk, model: str) -> dict[str, Any]:
    """Return the parent in the specification of a model's next job."""
    desk.submit(model, recipe={"method": {"name": "analytic"}, "seed": 0})
    claim = desk.claim()
    path = fetch_job_inputs_and_write_spec(
        desk.db, desk.store, claim, desk.settings, desk.folder / claim.job_id
    )
    parent: dict[str, Any] = json.loads(path.read_text())["parent"]
    return parent


def test_parts_of_versions_before_two_edits_are_read_through_both_maps(desk: Desk) -> None:
    model = desk.model()
    for _ in range(4):
        publish_version(desk, model)
    change_version(desk, model, 2, class_numbers=[1, 0, -1])
    change_version(desk, model, 4, class_numbers=[0, 2, 1])
    parent = read_parent_from_spec(desk, model)
    assert parent["class_numbers"] == [[0, 2, 1], [2, 0, -1]]
    assert {part["name"]: part.get("numbers") for part in parent["parts"]} == {
        "head": None,
        **{"statistics.4": None, "features.4": None},
        **{"statistics.3": 0, "features.3": 0, "statistics.2": 0, "features.2": 0},
        **{"statistics.1": 1, "features.1": 1},
    }


def test_parts_of_a_line_without_such_edits_have_the_present_numbers(desk: Desk) -> None:
    model = desk.model()
    for _ in range(2):
        publish_version(desk, model)
    parent = read_parent_from_spec(desk, model)
    assert parent["class_numbers"] == []
    assert all("numbers" not in part for part in parent["parts"])


def test_a_version_before_an_edit_is_continued_without_its_map(desk: Desk) -> None:
    model = desk.model()
    for _ in range(2):
        publish_version(desk, model)
    change_version(desk, model, 2, class_numbers=[1, 0])
    desk.roll_back(model)
    assert read_parent_from_spec(desk, model)["class_numbers"] == []


def test_totals_of_equal_parts_under_other_numbers_have_another_key() -> None:
    parts = [
        VersionPart(version_id="ver_1", name="statistics.1", type="statistics", sha256="a" * 64)
    ]
    keys = {
        digest_version_parts_in_feature_totals(parts, numbers)
        for numbers in (
            AS_STORED,
            AncestorClassNumberMaps([[1, 0]], {"ver_1": 0}),
            AncestorClassNumberMaps([[0, 2]], {"ver_1": 0}),
        )
    }
    assert len(keys) == 3
    # The key of earlier releases, so that their totals stay in use.
    named = [["statistics.1", "a" * 64]]
    assert hashlib.sha256(json.dumps(named).encode()).hexdigest() in keys


def test_sums_of_a_task_that_an_edit_removed_are_not_read(desk: Desk) -> None:
    model = desk.model()
    for _ in range(3):
        publish_version(desk, model)
    with desk.db.read() as session:
        query = select(Version.manifest).where(Version.model_id == model, Version.number == 3)
        manifest = session.scalars(query).one()
    change_version(desk, model, 3, manifest=manifest.model_copy(update={"tasks": [1, 3]}))
    names = [part["name"] for part in read_parent_from_spec(desk, model)["parts"]]
    assert names == ["head", "statistics.3", "features.3", "statistics.1", "features.1"]


@pytest.mark.parametrize("way", ["rename", "patch", None])
def test_only_a_version_that_an_edit_made_without_learning_goes_on_with_the_sums_before_it(
    desk: Desk, way: str | None
) -> None:
    model = desk.model()
    publish_version(desk, model)
    number = publish_version(desk, model, parts=())
    with desk.db.write() as session:
        query = select(Version.job_id).where(Version.model_id == model, Version.number == number)
        if way is not None:
            session.add(
                Edit(
                    id=new_id("edt"),
                    model_id=model,
                    number=1,
                    job_id=session.scalar(query),
                    operations=[],
                    way=way,
                    tasks=[],
                    parent=1,
                    version=number,
                    created_at=0.0,
                )
            )
    names = [part["name"] for part in read_parent_from_spec(desk, model)["parts"]]
    assert names == ["head", *(["statistics.1", "features.1"] if way else [])]
