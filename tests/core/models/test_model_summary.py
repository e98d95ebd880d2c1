"""The summary of a list: as many statements for a page as for one model, and the figures that
metrics tell.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy import event

from bench.service.fill import fill_database_with_generated_rows
from bench.service.series import GeneratedRowCounts, make_generated_row_id
from core.database.session import Database
from core.database.tables import Model, VersionMeasurement
from core.models import model_summary, models
from core.requests.actor import Actor
from tests.core.requests.test_flat_reads import CATALOGUE

SIZE = GeneratedRowCounts(70, 6, owners=3, measured=3, keys=3)
OWNER = Actor(make_generated_row_id("own", 0), None, "read")


@pytest.fixture
def filled(database: Database) -> Database:
    fill_database_with_generated_rows(database, SIZE, quiet=True)
    return database


@pytest.fixture
def sent(filled: Database) -> Iterator[list[str]]:
    """The statements that were sent."""
    seen: list[str] = []

    def record_statement(*given: object) -> None:
        seen.append(str(given[2]))

    event.listen(filled.engine, "before_cursor_execute", record_statement)
    yield seen
    event.remove(filled.engine, "before_cursor_execute", record_statement)


def test_a_page_of_many_summaries_takes_as_many_statements_as_one_of_few(
    filled: Database, sent: list[str]
) -> None:
    counts = []
    for limit in (10, 50):
        sent.clear()
        page = models.list_models(
            filled, CATALOGUE, OWNER, limit, None, models.ModelListQuery(summary=True)
        )
        assert len(page["items"]) == limit
        counts.append(len(sent))
    assert counts[0] == counts[1]
    sent.clear()
    models.list_models(filled, CATALOGUE, OWNER, 50, None)
    assert counts[1] - len(sent) == 3, "three for all summaries together"


@pytest.mark.both_databases
def test_a_summary_tells_what_is_stored(filled: Database) -> None:
    model = make_generated_row_id("mdl", 0)
    with filled.write() as session:
        for row in session.query(VersionMeasurement).filter_by(model_id=model, name="row"):
            row.value = row.version / 10
    with filled.read() as session:
        row = session.get_one(Model, model)
        [told] = model_summary.build_model_summaries(session, [row]).values()
        newest = row.next_version - 1
    assert told["versions"] == newest + 1 and told["tasks"] == SIZE.tasks
    assert told["acc"] == told["production"] / 10 if told["production"] else False
    assert told["forgetting"] == 0.01 and told["bytes"] == 988_212
    assert told["acc_line"] == sorted(told["acc_line"]) and 0 < len(told["acc_line"]) <= newest
    job = told["last_job"]
    assert job is not None and job["id"] == make_generated_row_id(
        "job", (SIZE.tasks - 1) * SIZE.models
    )


@pytest.mark.parametrize("images", [40, None], ids=["counted", "stored by an earlier release"])
def test_a_summary_says_how_many_images_an_accuracy_rests_on(
    filled: Database, images: int | None
) -> None:
    model = make_generated_row_id("mdl", 0)
    with filled.write() as session:
        for row in session.query(VersionMeasurement).filter_by(model_id=model, name="row"):
            count = {} if images is None else {"images": images}
            row.detail = {"last": 0.9, "forgetting": 0.01, **count}
    with filled.read() as session:
        row = session.get_one(Model, model)
        [told] = model_summary.build_model_summaries(session, [row]).values()
    assert told["images"] == images


def test_a_line_ends_after_its_newest_versions(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_summary, "LINE_VERSIONS", 2)
    with filled.read() as session:
        found = session.query(Model).filter(Model.owner_id == OWNER.owner_id).all()
        lines = [
            one["acc_line"] for one in model_summary.build_model_summaries(session, found).values()
        ]
    assert max(len(line) for line in lines) == 2


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("q", "names"), [("DEL-12", {"model-12"}), ("_", set()), ("%", set()), ("", None)]
)
def test_a_text_is_looked_for_as_it_stands_in_upper_or_lower_case(
    filled: Database, q: str, names: set[str] | None
) -> None:
    page = models.list_models(filled, CATALOGUE, OWNER, 200, None, models.ModelListQuery(q))
    found = {model["name"] for model in page["items"]}
    assert (len(found) == 64) if names is None else (found == names)
