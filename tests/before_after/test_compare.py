"""A comparison finds every planted change, and says what is new or only of another size."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.before_after.compare import Comparison, compare_recordings, main

BEFORE = {
    "GET /v1/models/a": {
        "status": 200,
        "body": {"name": "a", "warnings": ["one", "two"], "acc": 0.5, "base": None},
    },
    "GET /v1/models/a/versions/1": {
        "status": 200,
        "body": {"parts": [{"sha256": "ab", "bytes": 10}]},
    },
}
PARTS = {
    "a v1": {
        "parts": {"head": "ab"},
        "memory": {"buffer": {"columns": ["images"], "rows": ["x", "y"]}},
    }
}


def write_recording(folder: Path, answers: Any, parts: Any = PARTS, openapi: Any = None) -> Path:
    folder.mkdir()
    for name, content in (("answers", answers), ("parts", parts), ("openapi", openapi or {})):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def change_answers(title: str, *path: str | int, to: Any) -> Any:
    """Return the answers with one value changed."""
    copy = json.loads(json.dumps(BEFORE))
    place = copy[title]["body"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return copy


@pytest.mark.parametrize(
    "after",
    [
        change_answers("GET /v1/models/a", "name", to="b"),
        change_answers("GET /v1/models/a", "warnings", to=["one"]),
        change_answers("GET /v1/models/a", "warnings", to=["two", "one"]),
        change_answers("GET /v1/models/a", "acc", to=0.5000001),
        change_answers("GET /v1/models/a", "acc", to=None),
        change_answers("GET /v1/models/a", "base", to="random"),
        change_answers("GET /v1/models/a/versions/1", "parts", 0, "sha256", to="cd"),
        change_answers("GET /v1/models/a/versions/1", "parts", 0, to={"bytes": 10}),
        {**BEFORE, "GET /v1/models/a": {**BEFORE["GET /v1/models/a"], "status": 404}},
        {"GET /v1/models/a": BEFORE["GET /v1/models/a"]},
    ],
)
def test_a_changed_or_missing_field_is_a_difference(tmp_path: Path, after: Any) -> None:
    found = compare_recordings(
        write_recording(tmp_path / "before", BEFORE), write_recording(tmp_path / "after", after)
    )
    assert len(found.different) in (1, 2) and found.added == []


@pytest.mark.parametrize(
    "after",
    [
        {"a v1": {**PARTS["a v1"], "parts": {"head": "cd"}}},
        {
            "a v1": {
                **PARTS["a v1"],
                "memory": {"buffer": {"columns": ["images"], "rows": ["y", "x"]}},
            }
        },
        {"a v1": {**PARTS["a v1"], "memory": {}}},
        {},
    ],
)
def test_a_part_of_another_digest_and_a_row_that_is_not_the_same_are_differences(
    tmp_path: Path, after: Any
) -> None:
    found = compare_recordings(
        write_recording(tmp_path / "before", BEFORE),
        write_recording(tmp_path / "after", BEFORE, after),
    )
    assert found.different


def test_a_new_field_is_an_addition(tmp_path: Path) -> None:
    after = change_answers("GET /v1/models/a", "kind", to="learn")
    found = compare_recordings(
        write_recording(tmp_path / "before", BEFORE), write_recording(tmp_path / "after", after)
    )
    assert (found.different, found.added) == (
        [],
        ['answers → GET /v1/models/a → body: kind = "learn"'],
    )


def test_of_lists_of_other_lengths_what_is_gone_and_what_is_new_is_said() -> None:
    found = Comparison()
    found.value("log", ["a", "b", "c"], ["a", "d"])
    assert found.different == ['log: had 3 items, has 2; gone ["b", "c"], new ["d"]']


def test_another_number_of_bytes_is_said_and_is_no_difference() -> None:
    found = Comparison()
    found.value(
        "usage", {"bytes": 10, "of": {"bytes": [1, 2]}}, {"bytes": 9, "of": {"bytes": [1, 3]}}
    )
    found.value("owner", {"bytes": {"versions": 10}}, {"bytes": {"versions": 9}})
    assert (found.different, len(found.sizes)) == ([], 3)
    found.value("usage", {"bytes": 10, "n_bytes": 1}, {"bytes": None, "n_bytes": 2})
    assert len(found.different) == 2


@pytest.mark.parametrize(("after", "status"), [(BEFORE, 0), ({}, 1)])
def test_the_exit_status_says_whether_there_are_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: Any, status: int
) -> None:
    folders = [
        write_recording(tmp_path / "before", BEFORE),
        write_recording(tmp_path / "after", after),
    ]
    monkeypatch.setattr("sys.argv", ["compare", *map(str, folders)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == status
