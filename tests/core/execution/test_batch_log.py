"""Lines about the batch in a job's log."""

from pathlib import Path

from core.execution.batch_log import (
    build_batch_decoding_log_lines,
    build_batch_report_log_lines,
)
from core.ingest.ingest import IngestedBatch


def test_a_clean_batch_is_one_line() -> None:
    report = {"rejected": [], "rejected_count": 0, "ignored": 0, "duplicates": 0, "notes": []}
    made = IngestedBatch(
        Path("t"),
        Path("h"),
        Path("r"),
        {"cat": 1000, "dog": 234},
        ["cat", "dog"],
        1049,
        185,
        report,
        [],
    )
    assert build_batch_decoding_log_lines(made) == [
        ("info", "Decoded 1,234 images of 2 classes: 1,049 to learn from, 185 held out to measure.")
    ]


def test_what_was_left_out_is_told_with_the_first_three_reasons() -> None:
    report = {
        "rejected": [{"path": f"cat/{n}.png", "reason": "cannot be read"} for n in range(5)],
        "rejected_count": 12,
        "ignored": 3,
        "duplicates": 1,
        "notes": ["the common top folder was stripped"],
    }
    assert build_batch_report_log_lines(report) == [
        (
            "warning",
            "12 images rejected: cat/0.png (cannot be read); cat/1.png (cannot be read);"
            " cat/2.png (cannot be read); and 9 more, see the task's report.",
        ),
        ("info", "3 files ignored: not an image of a class."),
        ("info", "1 image repeats another one of the batch, byte for byte."),
        ("info", "The common top folder was stripped."),
    ]


def test_warnings_of_a_batch_are_warnings_of_the_log() -> None:
    made = IngestedBatch(
        Path("t"),
        Path("h"),
        Path("r"),
        {"cat": 1},
        ["cat"],
        1,
        0,
        {},
        ["No held-out image of cat."],
    )
    assert build_batch_decoding_log_lines(made) == [
        ("info", "Decoded 1 image of 1 class: 1 to learn from, none held out to measure."),
        ("warning", "No held-out image of cat."),
    ]


def test_a_report_without_names_says_where_to_look() -> None:
    assert build_batch_report_log_lines({"rejected_count": 3}) == [
        ("warning", "3 images rejected: see the task's report.")
    ]
