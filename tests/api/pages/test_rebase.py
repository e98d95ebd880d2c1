"""The pages of both models while one is to replace the other, and the form that moves
production.
"""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.api.routes.test_rebase import (
    Arrive,
    arrive,  # noqa: F401
    begin_rebase_without_images,
    old,  # noqa: F401
)

Text = Callable[[str], str]


@pytest.fixture
def moving(client: TestClient, old: str, arrive: Arrive) -> dict[str, str]:  # noqa: F811
    """Ids of `birds` and of the model that has learned the first of its two batches."""
    made = begin_rebase_without_images(client)
    arrive("birds-rebased", 1)
    return {"old": made["old"]["id"], "new": made["new"]["id"]}


def test_both_pages_say_what_is_on_its_way(
    moving: dict[str, str], logged_in: TestClient, text: Text
) -> None:
    page = text(logged_in.get(f"/ui/models/{moving['old']}").text)
    assert "It moves to another base birds-rebased learns what this model knows" in page
    page = text(logged_in.get(f"/ui/models/{moving['new']}").text)
    assert (
        "Replacement for birds Send the archive of task 2 (“week-2”, classes cat and dog)" in page
    )
    assert "task 1 week-1 task 1 learned 12 83.3 % 100.0 % +16.7" in page
    assert "task 2 week-2 send it again 12 83.3 % – –" in page
    assert "Move it though something is missing" in page


def test_production_moves_by_the_form_and_back(
    moving: dict[str, str], logged_in: TestClient, text: Text
) -> None:
    seen = {"old": "2", "new": "1", "reason": "photos"}
    refused = logged_in.post(f"/ui/models/{moving['new']}/rebase/finish", data=seen)
    assert refused.status_code == 409 and "cannot take the place of" in refused.text
    moved = logged_in.post(
        f"/ui/models/{moving['new']}/rebase/finish", data={**seen, "sure": "yes"}
    )
    assert moved.status_code == 303, moved.text
    page = text(logged_in.get(f"/ui/models/{moving['new']}").text)
    assert "Replaced birds-before-rebase" in page
    assert "“Put birds-before-rebase back…” puts birds-before-rebase back there." in page
    back = logged_in.post(
        f"/ui/models/{moving['old']}/rebase/finish", data={"old": "2", "new": "1"}
    )
    assert back.status_code == 303
    assert "It moves to another base" in logged_in.get("/ui/models/birds").text


def test_a_page_that_is_out_of_date_moves_nothing(
    moving: dict[str, str], logged_in: TestClient
) -> None:
    stale = {"old": "1", "new": "1", "sure": "yes"}
    refused = logged_in.post(f"/ui/models/{moving['new']}/rebase/finish", data=stale)
    assert refused.status_code == 409 and "look at the comparison again" in refused.text


def test_a_model_in_no_rebase_has_no_such_section(logged_in: TestClient, model: str) -> None:
    assert "rebase" not in logged_in.get(f"/ui/models/{model}").text
