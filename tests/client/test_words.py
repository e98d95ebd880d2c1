"""Sentences of the service with commands in the place of requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from perennial.shapes import convert_from_json
from perennial.types import BatchReport, Verdict
from perennial.words import (
    describe_compared_versions,
    describe_failed_checks,
    describe_left_out_files_and_entries,
    describe_unmeasured_checks,
    format_duration,
    format_version_comparison_page_hint,
    replace_requests_by_commands,
    replace_requests_by_task_commands,
)

SUSPECTS = (
    "It looks like cat. Look at them: report.data.suspects of the task, and pictures on its page."
)


@pytest.mark.parametrize(
    ("model", "task", "told"),
    [
        ("birds", 4, "`perennial issues birds 4`"),
        ("birds", None, "`perennial issues MODEL TASK`"),
        ("a b", 1, "`perennial issues 'a b' 1`"),
    ],
)
def test_a_finding_names_the_command_that_lists_its_images(
    model: str, task: int | None, told: str
) -> None:
    assert replace_requests_by_task_commands(SUSPECTS, model, task) == (
        f"It looks like cat. Look at them: {told}, and pictures on the task's page."
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "with POST /v1/models/a/tasks/2/relearn (soon).",
            "with `perennial tasks relearn a 2` (soon).",
        ),
        ("POST /v1/models/a/aliases/production/follow lets it.", "`perennial follow a` lets it."),
        ("POST /v1/jobs/job_1/retry, once more", "`perennial jobs retry job_1`, once more"),
        (
            'as it is: POST /v1/jobs/job_1/retry with {"recipe": {"data_report": "warn"}}.',
            'as it is: `perennial jobs retry job_1 --recipe \'{"data_report": "warn"}\'`.',
        ),
        (
            'roll it back with POST /v1/models/a/aliases/production/rollback {"version": 2, '
            '"reason": "…"}.',
            'roll it back with `perennial rollback a --to 2 --reason "WHY"`.',
        ),
        (
            'Send it: POST /v1/models/a/tasks with Perennial-Recipe: {"rebalance": {"epochs": 5}}.',
            'Send it: `perennial submit a BATCH --recipe \'{"rebalance": {"epochs": 5}}\'`.',
        ),
        (
            'Move: POST /v1/models/a/rebase {"base": "b/c"}. A',
            "Move: `perennial models rebase a --base b/c`. A",
        ),
        (
            "POST /v1/models/b/rebase/finish puts a back",
            "`perennial models rebase b --back` puts a back",
        ),
        ("GET /v1/models/a/rebase says", "`perennial models rebase a --status` says"),
        (
            "PUT /v1/models/a/aliases/staging can put it on version 1.",
            "`perennial promote a VERSION --alias staging` can put it on version 1.",
        ),
        ("say so with ?one_class=true, which", "say so with -o one_class=true, which"),
        (
            'PATCH /v1/webhooks/whk_1 {"enabled": true} first',
            "`perennial webhooks enable whk_1` first",
        ),
        (
            'To put it in production all the same, give a reason: {"version": 4, "reason": "…"}.',
            'To put it in production all the same, give a reason: `--reason "WHY"`.',
        ),
        (
            "PUT /v1/models/a/aliases/production can put it on version 1 or 2.",
            "`perennial promote a VERSION` can put it on version 1 or 2.",
        ),
        ("name the task with ?task= (1 or 2)", "name the task with --task (1 or 2)"),
        ("DELETE /v1/models/a.", "`perennial models rm a`."),
        (
            'once more: POST /v1/models {"name": "a b", "base": {"model": "x", "version": 2}}.',
            'once more:\n  perennial models create \'a b\' --base \'{"model": "x", "version": 2}\'',
        ),
    ],
)
def test_a_request_is_told_as_the_command_that_makes_it(said: str, told: str) -> None:
    assert replace_requests_by_commands(said) == told


@pytest.mark.parametrize("said", ["PUT /v1/models/a/thing", "POST /v1/models {…}", "No request."])
def test_what_there_is_no_command_for_stays_as_it_is(said: str) -> None:
    assert replace_requests_by_commands(said) == said


def test_files_that_could_not_be_used_are_named() -> None:
    found = [{"path": f"a/{number}.png", "reason": "is empty"} for number in range(5)]
    report = convert_from_json(BatchReport, {"rejected": found, "rejected_count": 5})
    (said,) = describe_left_out_files_and_entries(report)
    assert (
        said
        == "5 files could not be used: a/0.png (is empty); a/1.png (is empty); a/2.png (is empty), "
        "…"
    )
    assert describe_left_out_files_and_entries(convert_from_json(BatchReport, {})) == []


def test_entries_of_a_table_that_were_left_out_are_named() -> None:
    found = [
        {"where": f"line {number} of t.csv", "reason": "names no image"} for number in range(2, 7)
    ]
    report = convert_from_json(BatchReport, {"bad_entries": found, "bad_entries_count": 1005})
    (said,) = describe_left_out_files_and_entries(report)
    assert said.startswith(
        "1,005 entries of the label table left out: line 2 of t.csv: names no image; "
    )


PICTURE = {
    "task": 1,
    "index": 7,
    "label": "cat",
    "before": "cat",
    "now": "hat",
    "image": "/v1/7.png",
}
FAILED = {
    "name": "class_lost",
    "limit": 0.1,
    "value": 0.0,
    "passed": False,
    "detail": "It lost cat (0 of 12 right, 11 by version 1).",
    "pictures": [PICTURE],
}
UNMEASURED = {
    "name": "forgotten",
    "limit": 0.04,
    "value": None,
    "passed": True,
    "not_measured": "no images",
}


def make_gated_version(*checks: dict[str, Any], **more: Any) -> Any:
    """Make a version with a verdict, to test its sentences alone."""
    verdict = convert_from_json(Verdict, {"passed": False, "checks": list(checks), **more})
    return SimpleNamespace(gate=verdict, parent=1, number=2)


def test_a_failed_check_names_classes_and_where_the_images_are_shown() -> None:
    held = make_gated_version(FAILED, UNMEASURED)
    assert list(describe_failed_checks(held)) == [
        "it lost a class. It lost cat (0 of 12 right, 11 by version 1)."
    ]
    assert list(format_version_comparison_page_hint("http://host:8000", "my cats", held)) == [
        "Look at these images: http://host:8000/ui/models/my%20cats/compare?a=1&b=2"
    ]
    assert (
        list(
            format_version_comparison_page_hint(
                "http://host:8000", "my cats", make_gated_version(UNMEASURED)
            )
        )
        == []
    )


def test_what_was_not_measured_and_what_could_be_seen_is_said() -> None:
    visible = {"images": 42, "loss": 0.3, "more": None, "then": None, "detail": "With 42 images …"}
    assert list(describe_unmeasured_checks(make_gated_version(UNMEASURED, visible=visible))) == [
        "forgotten: not measured, no images",
        "With 42 images …",
    ]
    assert list(describe_compared_versions(make_gated_version(UNMEASURED))) == [
        "Not compared with the version before: no images."
    ]
    assert list(describe_compared_versions(make_gated_version(UNMEASURED, visible=visible))) == [
        "With 42 images …"
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "1 s"),
        (40.4, "40 s"),
        (119.4, "119 s"),
        (120.0, "2 min"),
        (3_570, "60 min"),
        (90_000, "1,500 min"),
    ],
)
def test_a_duration_is_said_in_seconds_then_in_minutes(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
