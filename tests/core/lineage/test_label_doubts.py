"""Doubts about the labels of a batch that hold its version."""

from typing import Any

import pytest

from core.lineage.label_doubts import find_mostly_doubted_labels_finding

FINDING = {"kind": "suspects", "holds": True, "text": "Are the labels wrong?"}
DOUBTED = [{"images": 30}, {"images": 20}]


@pytest.mark.parametrize(
    ("data", "doubt"),
    [
        ({"mislabelled": DOUBTED, "examined": 100, "findings": [FINDING]}, FINDING["text"]),
        ({"mislabelled": DOUBTED, "examined": 101, "findings": [FINDING]}, None),
        (
            {"mislabelled": DOUBTED, "examined": 100, "findings": [{**FINDING, "holds": False}]},
            None,
        ),
        ({"mislabelled": [{"images": 50}], "examined": 100, "findings": [FINDING]}, None),
        ({"mislabelled": [], "examined": 100, "findings": [FINDING]}, None),
        ({"examined": 100, "findings": [FINDING]}, None),
    ],
    ids=[
        "half of the images",
        "fewer",
        "accepted",
        "one class",
        "single suspects",
        "an older report",
    ],
)
def test_most_labels_must_be_doubted_and_not_accepted(data: Any, doubt: str | None) -> None:
    assert find_mostly_doubted_labels_finding({"data": data}) == doubt


@pytest.mark.parametrize("report", [None, {}])
def test_a_batch_without_a_data_report_is_not_doubted(report: Any) -> None:
    assert find_mostly_doubted_labels_finding(report) is None
