"""Limits on what a request stores in the database and on the lists of it, on both databases."""

import json

import pytest
from sqlalchemy import select

from core.contract.patch import RecipePatch
from core.database.session import Database
from core.database.tables import AuditEntry, Model
from core.errors import InvalidRecipe
from core.models import models
from core.recipe.resolve import complete_stored_recipe
from core.recipe.stored_patch import (
    MAX_RECIPE_BYTES,
    build_stored_recipe_override,
    build_stored_recipe_patch,
)
from core.requests import pages
from core.requests.audit import MAX_DATA_BYTES
from tests.core.batches import CATALOGUE
from tests.core.office import Office

JUNK = {"x" * 1000: None, "epochs": 3, "method": None, "optimizer": {"y" * 1000: None}}


def _read_model(database: Database) -> Model:
    with database.read() as session:
        return session.scalars(select(Model).where(Model.name == "birds")).one()


def test_a_model_keeps_what_its_recipe_says_and_no_nulls(office: Office) -> None:
    made = office.create(recipe={**JUNK, "optimizer": None})
    assert _read_model(office.db).recipe == {
        "balanced_batches": True,
        "preset": "from-random",
        "epochs": 3,
    }
    assert made["recipe"]["method"]["name"] == "er"


def test_a_change_of_a_recipe_keeps_no_nulls_of_it_or_of_what_was_stored_before(
    office: Office, model: str
) -> None:
    with office.db.write() as session:
        session.get_one(Model, model).recipe = {"method": None, "x" * 1000: None, "seed": 7}
    models.change_model(
        office.db, CATALOGUE, office.actor, model, {"recipe": {**JUNK, "optimizer": None}}
    )
    assert _read_model(office.db).recipe == {"preset": "from-random", "seed": 7, "epochs": 3}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"balanced_batches": False}, None, True),
        ({"balanced_batches": False}, {"balanced_batches": None}, True),
        ({"balanced_batches": False}, {"method": None}, False),
        ({"epochs": 3}, None, False),
        ({"epochs": 3}, {"balanced_batches": None}, False),
        ({"epochs": 3}, {"method": "er"}, False),
        ({"epochs": 3}, {"balanced_batches": True}, True),
    ],
)
def test_a_reset_balances_batches_only_of_models_that_were_created_so(
    office: Office, model: str, before: RecipePatch, patch: RecipePatch | None, after: bool
) -> None:
    with office.db.write() as session:
        session.get_one(Model, model).recipe = before
    models.change_model(office.db, CATALOGUE, office.actor, model, {"recipe": patch})
    assert _read_model(office.db).recipe.get("balanced_batches", False) is after


def test_a_method_that_was_stored_as_null_is_shown_as_the_default() -> None:
    shown = complete_stored_recipe(CATALOGUE, "class", {"method": None, "x": None})
    assert shown["method"] == {"name": "er", "buffer": 5} and "x" not in shown


def test_a_recipe_larger_than_recipes_may_be_is_refused_with_its_size(
    office: Office, model: str
) -> None:
    large = {"x" * MAX_RECIPE_BYTES: None}
    for ask in (
        lambda: office.create("a", recipe=large),
        lambda: models.change_model(office.db, CATALOGUE, office.actor, model, {"recipe": large}),
        lambda: build_stored_recipe_override(CATALOGUE, large),
    ):
        with pytest.raises(InvalidRecipe, match=f"{MAX_RECIPE_BYTES} bytes; this one has"):
            ask()


def test_a_batch_keeps_nulls_of_names_that_there_are_since_they_reset() -> None:
    known = {
        **CATALOGUE,
        "recipe": {**CATALOGUE["recipe"], "schema": {"properties": {"epochs": {}}}},
    }
    assert build_stored_recipe_override(
        known, {"epochs": None, "x": None, "method": {"name": "er", "y": None}}
    ) == {
        "epochs": None,
        "method": {"name": "er"},
    }
    assert build_stored_recipe_patch({"epochs": None}) == {}


def test_a_row_of_the_audit_trail_is_bounded_and_names_what_it_leaves_out(
    office: Office, model: str
) -> None:
    patch = {
        "recipe": {f"{number:04}{'x' * 100}": None for number in range(300)},
        "on_held": "continue",
    }
    models.change_model(office.db, CATALOGUE, office.actor, model, patch)
    with office.db.read() as session:
        kept = session.scalars(
            select(AuditEntry.data).order_by(AuditEntry.id.desc()).limit(1)
        ).one()
    assert kept["left_out"] == ["on_held", "recipe"] and kept["bytes"] > MAX_DATA_BYTES


@pytest.mark.both_databases
def test_a_page_ends_before_its_rows_hold_more_than_a_page_may(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 30_000)
    labels = [f"{number:03}{'é' * 10}" for number in range(150)]  # ten thousand bytes
    for number in range(7):
        office.create(f"m{number}", "data", classes=labels if number < 6 else None)
    seen, sizes, cursor = [], [], None
    while True:
        page = models.list_models(office.db, CATALOGUE, office.actor, 200, cursor)
        seen += [item["name"] for item in page["items"]]
        sizes.append(len(json.dumps(page["items"])))
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"m{number}" for number in range(7)]
    assert len(sizes) >= 3 and max(sizes) < 40_000


def test_a_row_larger_than_a_page_may_be_is_a_page_of_its_own(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 10)
    for number in range(2):
        office.create(f"m{number}")
    first = models.list_models(office.db, CATALOGUE, office.actor, 200, None)
    second = models.list_models(office.db, CATALOGUE, office.actor, 200, first["next_cursor"])
    assert [len(page["items"]) for page in (first, second)] == [1, 1] and second[
        "next_cursor"
    ] is None
