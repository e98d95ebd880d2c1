"""The table of a comparison, as text, Markdown and JSON."""

from collections.abc import Sequence
from typing import Any

from tools.compare_methods.outcome import Outcome

WORDS = {
    "lda": "frozen features + LDA",
    "logistic": "frozen features + logistic regression",
    "finetune": "fine-tuning on the new batch alone",
    "full": "full retraining after each batch",
    "perennial": "Perennial's default",
}
"""Row → its name for a person, in the order of the table."""
COLUMNS = ("method", "accuracy", "worst class", "seconds of last batch", "images kept")


def table_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the cells of the table, a list for each row."""
    return [_format_cells(outcome) for outcome in outcomes]


def render_markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the table as Markdown."""
    header_lines = [f"| {' | '.join(COLUMNS)} |", "| --- | ---: | --- | ---: | ---: |"]
    return "\n".join(
        [*header_lines, *(f"| {' | '.join(cells)} |" for cells in table_rows(outcomes))]
    )


def row_document(outcome: Outcome) -> dict[str, Any]:
    """Return a row as JSON."""
    name, share = outcome.worst_class
    return {
        "row": outcome.row,
        "method": WORDS[outcome.row],
        "accuracy": outcome.accuracy,
        "worst_class": {"class": name, "accuracy": share},
        "seconds_last_batch": outcome.seconds,
        "images_kept": outcome.images_kept,
        "per_class": {label: list(counts) for label, counts in outcome.per_class.items()},
        "notes": outcome.notes,
    }


def _format_cells(outcome: Outcome) -> list[str]:
    name, share = outcome.worst_class
    return [
        WORDS[outcome.row],
        f"{outcome.accuracy:.3f}",
        f"{share:.3f} ({name})",
        f"{outcome.seconds:.1f}",
        f"{outcome.images_kept:,}",
    ]
