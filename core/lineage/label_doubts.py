"""Doubts about the labels of a batch, from its stored report, for the gate."""

from core.contract.reports.report import BatchReport

FEWEST_CLASSES = 2
"""Doubted classes from which a version is held."""
MOST_DOUBTED = 0.5
"""Share of the examined training images whose labels contradict what the model has learned, from
which the version is held."""


def find_mostly_doubted_labels_finding(report: BatchReport | None) -> str | None:
    """Find the finding that most labels of a batch's known classes look swapped or wrong.

    None if fewer do, or if a person has accepted the finding. A single doubted class does not hold
    a batch either: its images may as well come from another camera.
    """
    data = None if report is None else report.get("data")
    if not data or not data.get("mislabelled"):
        return None
    doubted = sum(one["images"] for one in data["mislabelled"])
    if len(data["mislabelled"]) < FEWEST_CLASSES or doubted < MOST_DOUBTED * data.get(
        "examined", 0
    ):
        return None
    texts = (
        one["text"]
        for one in data.get("findings", [])
        # A finding that a person has accepted is still listed, but holds nothing.
        if one["kind"] == "suspects" and one["holds"]
    )
    return next(texts, None)
