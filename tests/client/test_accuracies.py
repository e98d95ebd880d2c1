"""Accuracies by task, for a model with a rejected and a discarded task between learned ones."""

from collections.abc import Iterator

import pytest
import stub
from sample_answers import find_sample_answer
from terminal import record_command

from perennial.cli.main import run_command_line

CELLS = {1: 0.9, 3: 0.1, 4: 0.8, 6: None}
"""Task 2 was rejected; task 3 was discarded after a version had learned it; task 5 was rejected."""


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[stub.Stub]:
    """A service whose version 7 was taught tasks 1, 4 and 6."""

    def answer_service_request(asked: stub.Asked) -> stub.Said:
        found = find_sample_answer(asked.method, asked.path)
        path = asked.path.partition("?")[0]
        if path.endswith("/versions"):
            item = {"number": 7, "mean_accuracy": 0.85, "images": 40}
            found = {**found, "items": [{**found["items"][0], **item}]}
        elif "/versions/" in path:
            found = {**found, "number": 7, "tasks": [1, 4, 6], "accuracy": list(CELLS.values())}
        elif path.endswith("/metrics"):
            rows = [{**found["rows"][0], "version": 7, "status": "published"}]
            now = {"when_learned": 0.9, "now": 0.9, "forgetting": 0.0}
            columns = [{**found["columns"][0], "task": task, "n": 20} for task in CELLS]
            found = {
                **found,
                "rows": rows,
                "columns": columns,
                "accuracy_matrix": [list(CELLS.values())],
                "marks": [{**found["marks"][0], "version": 7, "task": 1}],
                "summary": {
                    **found["summary"],
                    "acc": 0.85,
                    "per_task": [
                        {**now, "task": 1},
                        {**now, "task": 4},
                        {**now, "task": 6, "now": None},
                    ],
                },
            }
        elif path == "/v1/models/birds":
            found = {**found, "aliases": {"production": 7, "latest": 7}}
        elif "/jobs/" in path:
            found = {**found, "version": 7, "task": 4}
        elif "/tasks/4" in path:
            found = {**found, "number": 4, "accuracy_when_learned": 0.8}
        return stub.Said(body=found)

    with stub.run_stub(answer_service_request) as found:
        monkeypatch.setenv("PERENNIAL_URL", found.url)
        monkeypatch.setenv("PERENNIAL_API_KEY", "pk_x")
        yield found


@pytest.mark.parametrize(
    "command", ["jobs watch job_1", "versions show birds 7", "versions note birds 7 ok"]
)
def test_each_accuracy_is_named_by_its_task_and_its_images(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(command.split()) == 0
    out = capsys.readouterr().out
    assert "task 1 0.900 (20 images), task 4 0.800 (20 images), task 6 –\n" in out
    assert "–: not measured, since the task has no held-out images." in out


def test_a_table_of_accuracies_has_the_images_of_each_task_and_a_mark_for_each_meaning(
    service: stub.Stub,
) -> None:
    metrics = record_command(service.url, "pk_x", "metrics", "birds")
    table = [" ".join(line.split()) for line in metrics.last]
    assert "images – 20 20 20 20" in table
    assert "7* published 0.900† 0.100 0.800 –" in table
    assert "† labels edited since this version was measured." in table
    assert "* in production: version 7." in table
    assert "mean accuracy (ACC) 0.850 (40 images)" in table


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("versions list birds --columns version,accuracy,images", ["7\t0.85\t40"]),
        (
            "versions diff birds 7 7 --columns task,7,change,images",
            ["1\t0.9\t+0.000\t20", "3\t0.1\t+0.000\t20", "4\t0.8\t+0.000\t20"],
        ),
    ],
)
def test_a_table_of_versions_has_the_images_that_each_accuracy_rests_on(
    command: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(command.split()) == 0
    assert capsys.readouterr().out.splitlines() == lines
