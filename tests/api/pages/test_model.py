"""The content of the pages of a model, a task and a list, and that they ask the database equally often
for few and for many."""

import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event, select
from starlette.testclient import TestClient

from api.pages.parts import heat_map, render, svg
from core.contract.gate import CheckPicture, GateCheck, Verdict
from core.database.session import Database
from core.database.tables import Model, Task, Version
from core.ids import new_id
from core.lineage.checks import CHECKS, NEW_GATE
from core.versions.history import ProductionMove, VersionSummaryRow
from tests.core.rows import make_job_row

Publish = Callable[..., int]
Text = Callable[[str], str]


def publish_stream(publish: Publish, model: str, tasks: int) -> None:
    """Publish a stream in which each version forgets a little of every earlier task."""
    for number in range(1, tasks + 1):
        cells = {
            task: (20 - 2 * (number - task), 20) for task in range(max(1, number - 8), number + 1)
        }
        halves = {
            task: {f"cat-{task}": [min(10, right), 10], f"dog-{task}": [max(0, right - 10), 10]}
            for task, (right, _) in cells.items()
        }
        publish(model, cells=cells, per_class=halves)


def test_the_page_says_how_production_is_and_which_classes_were_hurt(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish_stream(publish, model, 3)
    said = text(logged_in.get(f"/ui/models/{model}").text)
    assert (
        "Production is version 3 Its accuracy is 90.0 %, the mean over 3 tasks (60 images)." in said
    )
    assert "Nothing waits for you." in said
    assert "What version 3 did to each class Beside version 2" in said and "2 classes worse" in said
    assert "dog-1 80.0 % 60.0 % −20.0 10" in said


CALIBRATION = {
    **{"error": 0.12, "low": 0.05, "high": 0.19, "raw": 0.14, "images": 120},
    "bins": [
        {"images": 60, "probability": 0.5, "right": 15},
        {"images": 60, "probability": 1.0, "right": 60},
    ],
}


def test_the_page_says_how_far_probabilities_are_off_and_draws_it(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish(model, cells={1: (20, 20)}, manifest={"calibration": CALIBRATION})
    page = logged_in.get(f"/ui/models/{model}").text
    said = text(page)
    assert (
        "They are off by 12.0 % (calibration error 0.120, 95 % interval 0.050 to 0.190, 120" in said
    )
    assert "50.0 % 25.0 % 60 100.0 % 100.0 % 60" in said
    assert '<circle cx="100.0" cy="150.0" r="4"/>' in page
    assert (
        logged_in.get(f"/v1/models/{model}/metrics").json()["summary"]["calibration"] == CALIBRATION
    )
    within = {**CALIBRATION, "low": -0.01}
    publish(model, cells={1: (20, 20)}, manifest={"calibration": within})
    assert "They hold, as far as 120 held-out images can tell" in text(
        logged_in.get(f"/ui/models/{model}").text
    )


CURVE = [
    {"probability": probability, "images": images, "right": right}
    for probability, images, right in ((0.9, 100, 100), (0.6, 150, 149), (0.4, 300, 240))
]


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        (
            0.95,
            "Answers with a probability of 0.600 or more: 50.0 % of 300 held-out images, of which "
            "99.3 %",
        ),
        (0.995, "takes at least 598 held-out images, and this version has 300"),
        (
            0.99,
            "None: of the most probable answers to 300 held-out images too few are right to "
            "promise 99.0 %",
        ),
    ],
)
def test_the_page_says_which_answers_are_sure(
    logged_in: TestClient, model: str, publish: Publish, text: Text, precision: float, said: str
) -> None:
    publish(model, cells={1: (20, 20)}, manifest={"calibration": {**CALIBRATION, "curve": CURVE}})
    assert "Which answers are sure" not in logged_in.get(f"/ui/models/{model}").text
    changed = logged_in.patch(f"/v1/models/{model}", json={"answers": {"precision": precision}})
    assert changed.status_code == 200, changed.text
    page = logged_in.get(f"/ui/models/{model}").text
    assert said in text(page) and '<polyline points="66.7,0.0 100.0,2.7 200.0,80.0"/>' in page
    told = logged_in.get(f"/v1/models/{model}/metrics").json()["summary"]["sure"]
    assert told["precision"] == precision and told["images"] == 300


def test_the_spread_of_a_bin_is_that_of_wilson() -> None:
    bar, whole = svg.lay_out_reliability_diagram(CALIBRATION["bins"])  # type: ignore[arg-type]
    assert (bar.top / svg.SQUARE, bar.bottom / svg.SQUARE) == pytest.approx(
        (1 - 0.3723, 1 - 0.1578), abs=1e-3
    )
    assert whole.top == pytest.approx(0, abs=1e-9) and whole.bottom > 1


def test_what_waits_comes_first_with_its_buttons(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish_stream(publish, model, 3)
    assert logged_in.post(f"/ui/models/{model}/aliases/production/rollback").status_code == 303
    page = logged_in.get(f"/ui/models/{model}").text
    said = text(page)
    assert said.index("1 thing waits for you") < said.index("Production is version 2")
    assert "Task 3 was rolled back" in said and "Put version 3 back in production…" in said
    assert "/v1/models" not in said, "requests of the API are for programs"
    assert re.search(r'action="/ui/models/mdl_[a-z0-9]+/tasks/3/discard"', page)


SEEN = "The gate compared 42 held-out images of earlier tasks: it may miss a loss of less than 37 points."


def write_verdict(
    browser: TestClient, version: int, *checks: GateCheck, visible: bool = False
) -> None:
    """Write a gate's verdict into a version."""
    db: Database = browser.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        row = session.scalars(select(Version).where(Version.number == version)).one()
        gate: Verdict = {"passed": all(check["passed"] for check in checks), "checks": list(checks)}
        if visible:
            gate["visible"] = {
                "images": 42,
                "loss": 0.368,
                "more": None,
                "then": None,
                "detail": SEEN,
            }
        row.gate = gate


def test_a_held_version_shows_the_images_that_it_lost_while_they_are_kept(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish(model)
    publish(model, passed=False)
    db: Database = logged_in.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        task = session.scalars(select(Task).where(Task.number == 2)).one()
        owner = session.get_one(Model, task.model_id).owner_id
        session.add(
            make_job_row(new_id("job"), task.model_id, owner, task.id, 2, state="succeeded")
        )
    image = f"/v1/models/{model}/tasks/1/images/held_out/7.png"
    picture: CheckPicture = {
        "task": 1,
        "index": 7,
        "label": "cat",
        "before": "cat",
        "now": "hat",
        "image": image,
    }
    detail = "It lost cat (0 of 12 right, 11 by version 1)."
    check: GateCheck = {
        "name": "class_lost",
        "limit": 0.1,
        "value": 0.0,
        "passed": False,
        "detail": detail,
    }
    write_verdict(logged_in, 2, {**check, "pictures": [picture]})
    page = logged_in.get(f"/ui/models/{model}").text
    assert f'src="{image}"' in page and "✓ cat before ✗ hat now" in text(page)
    assert "held by its gate: it lost cat (0 of 12 right, 11 by version 1)." in text(page)
    shown = logged_in.get(f"/v1/models/{model}").json()["attention"][0]
    assert shown["pictures"] == [picture]
    with db.write() as session:
        session.scalars(select(Task).where(Task.number == 1)).one().held_out_deleted_at = 1.0
    assert image not in logged_in.get(f"/ui/models/{model}").text


def test_production_says_what_was_compared_and_what_could_be_seen(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish_stream(publish, model, 2)
    calm = {"name": "forgotten", "limit": 0.04, "value": 0.0, "passed": True}
    write_verdict(logged_in, 2, {**calm, "detail": "Of 42 images 0 turned wrong."}, visible=True)  # type: ignore[typeddict-item]
    said = text(logged_in.get(f"/ui/models/{model}").text)
    assert f"Of 42 images 0 turned wrong. {SEEN}" in said and "lost no class" not in said
    write_verdict(logged_in, 2, {**calm, "not_measured": "no images"})  # type: ignore[typeddict-item]
    said = text(logged_in.get(f"/ui/models/{model}").text)
    assert "It was not compared with the version before: no images." in said


def test_checks_that_are_off_are_named_and_switched_on_by_a_button(
    logged_in: TestClient, model: str, text: Text
) -> None:
    logged_in.patch(f"/v1/models/{model}", json={"gate": {"checks": "off"}})
    said = text(logged_in.get(f"/ui/models/{model}").text)
    assert (
        "forgotten, confused, class lost, drifted, learned nothing, features collapsed: held-out "
        "images are not" in said
    )
    assert logged_in.post(f"/ui/models/{model}/checks").status_code == 303
    gate = logged_in.get(f"/v1/models/{model}").json()["gate"]
    assert {name: gate[name] for name in CHECKS} == NEW_GATE
    said = text(logged_in.get(f"/ui/models/{model}").text)
    assert "Checks that are off" not in said and "forgotten ≤ 4 % of the held-out images" in said


def test_a_cell_shows_its_classes(
    logged_in: TestClient, model: str, publish: Publish, text: Text
) -> None:
    publish_stream(publish, model, 3)
    said = text(logged_in.get(f"/ui/models/{model}?v=3&t=1").text)
    assert "Version 3 on task 1" in said and "cat-1 100.0 % 100.0 % 0.0 10" in said
    assert logged_in.get(f"/ui/models/{model}?v=77&t=1").status_code == 404


@contextmanager
def record_sql_statements(browser: TestClient) -> Iterator[list[str]]:
    """Collect the statements that are sent to the database inside the `with` block."""
    db: Database = browser.app.state.database  # type: ignore[attr-defined]
    seen: list[str] = []

    def record_statement(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    event.listen(db.engine, "before_cursor_execute", record_statement)
    yield seen
    event.remove(db.engine, "before_cursor_execute", record_statement)


def test_the_number_of_queries_is_that_of_a_small_model(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    counts = []
    for more in (3, 9):
        publish_stream(publish, model, more)
        found = []
        for path in ("/ui", f"/ui/models/{model}?v=3&t=1", f"/ui/models/{model}/tasks/1"):
            with record_sql_statements(logged_in) as seen:
                assert logged_in.get(path).status_code == 200
            found.append(len(seen))
        counts.append(found)
    assert counts[0] == counts[1] and max(counts[1]) < 60


def test_versions_are_in_pages_of_thirty(
    logged_in: TestClient, model: str, publish: Publish
) -> None:
    publish_stream(publish, model, 31)
    first = logged_in.get(f"/ui/models/{model}").text
    assert first.count('aria-label="Version 31, task') == 9 and "Version 1, task" not in first
    assert "?last=1#r-title" in first
    second = logged_in.get(f"/ui/models/{model}?last=1").text
    assert "Version 1, task 1" in second and "Newer versions" in second


def test_a_list_is_empty_with_the_commands_that_fill_it(logged_in: TestClient, text: Text) -> None:
    said = text(logged_in.get("/ui").text)
    assert "perennial models create birds" in said and "perennial submit birds" in said
    assert "No model has “x” in its name" in text(logged_in.get("/ui?q=x").text)


def test_a_list_goes_on_page_by_page(
    logged_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.pages.models.ROWS", 2)
    for name in ("a", "b", "c"):
        logged_in.post(
            "/v1/models", json={"name": name, "scenario": "class", "architecture": "small-cnn"}
        )
    newest = logged_in.get("/ui").text
    assert newest.index('">c</a>') < newest.index('">b</a>') and '">a</a>' not in newest
    following = newest.split("newest&amp;cursor=")[1].split('"')[0]
    assert '">a</a>' in logged_in.get(f"/ui?sort=newest&cursor={following}").text


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (render.format_percent(0.9612), "96.1 %"),
        (render.format_percent(None), "–"),
        (render.format_percentage_points(-0.081), "−8.1"),
        (render.format_percentage_points(0.0004), "0.0"),
        (render.format_byte_size(999), "999 B"),
        (render.format_byte_size(4_130_000), "4.1 MB"),
        (render.format_byte_size(123_400_000), "123 MB"),
        (render.format_duration(59), "59 s"),
        (render.format_duration(7200), "2 h"),
        (render.format_with_thousands_separators(12_345), "12,345"),
        (render.format_duration_between("2026-11-24T02:10:00Z", "2026-11-24T02:15:30Z"), "6 min"),
    ],
)
def test_numbers_read_well(made: str, said: str) -> None:
    assert made == said


def build_version_row(
    number: int, parent: int | None, status: str = "published"
) -> VersionSummaryRow:
    gate: Verdict = {"passed": status != "held", "checks": []}
    return VersionSummaryRow(
        *(number, parent, number or None, None, status, gate, 1, 1),
        *(None, None, "", None, None, None),
    )


def test_a_version_that_was_passed_over_leaves_the_line() -> None:
    rows = [
        build_version_row(0, None),
        build_version_row(1, 0),
        build_version_row(2, 1, "held"),
        build_version_row(3, 1),
        build_version_row(4, 3),
    ]
    back = ProductionMove(1, 3, "rollback", None, "")
    drawn = svg.lay_out_version_tree(rows[::-1], [back])
    lanes = {node.version.number: node.y for node in drawn.nodes}
    assert lanes[0] == lanes[1] == lanes[3] == lanes[4] < lanes[2]
    assert [(move.cause, "C" in path) for path, move in drawn.moves] == [("rollback", True)]


def test_a_small_fall_looks_small() -> None:
    def measure_sparkline_height(values: list[float]) -> float:
        ys = [float(point.split(",")[1]) for point in svg.compute_sparkline_points(values).split()]
        return max(ys) - min(ys)

    assert measure_sparkline_height([0.99, 0.98]) < 3 < 15 < measure_sparkline_height([0.99, 0.5])
    assert svg.compute_sparkline_points([0.5]) == ""


def test_the_worst_tasks_have_a_column_and_all_in_order_on_request() -> None:
    many = 50
    columns = [{"task": n, "name": None, "classes": [], "n": 1} for n in range(1, many + 1)]
    numbers = range(1, many + 1)
    per_task = [
        {"task": n, "when_learned": 1.0, "now": 1 - n / 100, "forgetting": n / 100} for n in numbers
    ]
    found = {
        "rows": [{"version": many, "task": many, "parent": many - 1, "status": "published"}],
        "columns": columns,
        "accuracy_matrix": [[1 - n / 100 for n in range(1, many + 1)]],
        "marks": [],
        "summary": {"per_task": per_task},
    }
    made = heat_map.build_heat_map(found, production=many, left=set(), first=None)  # type: ignore[arg-type]
    assert [column["task"] for column in made.columns] == list(range(11, 51)) and made.hidden == 10
    assert made.rows[0].cells[-1].fallen == pytest.approx(0.5) and made.rows[0].cells[-1].step == 0
    for first, shown, earlier, later in (
        (1, (1, 40), None, 41),
        (41, (41, 50), 1, None),
        (11, (11, 50), 1, None),
    ):
        part = heat_map.build_heat_map(found, production=many, left=set(), first=first)  # type: ignore[arg-type]
        assert (part.columns[0]["task"], part.columns[-1]["task"]) == shown
        assert (part.earlier, part.later) == (earlier, later)


def test_a_cell_whose_labels_were_edited_says_so() -> None:
    found = {
        "rows": [{"version": n, "task": n, "parent": n - 1, "status": "published"} for n in (1, 2)],
        "columns": [{"task": 1, "name": None, "classes": [], "n": 1}],
        "accuracy_matrix": [[0.9], [0.8]],
        "marks": [{"version": 1, "task": 1, "mark": "labels edited", "counted_again": False}],
        "summary": {"per_task": []},
    }
    made = heat_map.build_heat_map(found, production=2, left=set(), first=None)  # type: ignore[arg-type]
    newest, oldest = (row.cells[0].mark for row in made.rows)
    assert made.has_edited_labels and newest == "" and oldest.startswith("labels edited since")


@pytest.mark.parametrize("path", ["/ui/models/{model}", "/ui/models/{model}/first", "/ui"])
def test_a_change_after_the_page_was_read_is_in_its_event_stream(
    logged_in: TestClient, model: str, publish: Publish, path: str
) -> None:
    publish(model, cells={1: (20, 20)})
    publish(model, cells={1: (20, 20), 2: (20, 20)})
    production = f"/v1/models/{model}/aliases/production"
    assert logged_in.put(production, json={"version": 1, "reason": "before"}).status_code == 200
    page = logged_in.get(path.format(model=model)).text
    assert logged_in.put(production, json={"version": 2, "reason": "after"}).status_code == 200
    (stream,) = re.findall(r'data-events="([^"]+)"', page)
    found = logged_in.get(html.unescape(stream)).json()["items"]
    assert [(one["type"], one["data"]["version"]) for one in found] == [("alias", 2)]
