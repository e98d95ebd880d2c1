"""The figures of a comparison: outcomes, the table and the estimate."""

import numpy as np
import pytest

from tools.compare_methods.comparison import (
    ComparisonTimeEstimateInputs,
    SecondsPerImage,
    describe_estimated_comparison_time,
    estimate_comparison_seconds,
)
from tools.compare_methods.outcome import (
    COLUMNS,
    WORDS,
    UpdateOutcome,
    build_comparison_table_rows,
    build_method_result_json,
    count_correct_by_class,
    render_outcome_table,
)

OUTCOME = UpdateOutcome(
    "full", {"cat": (9, 10), "dog": (1, 5), "owl": (5, 5)}, 12.34, 1200, ["held"]
)
RATES = SecondsPerImage(decode=0.01, features=0.1, training=0.5)
WORK = ComparisonTimeEstimateInputs(learned=600, held_out=400, epochs=3)
TRAINING = 3 * 600 * 0.5 + 400 * 0.1


def test_right_answers_are_counted_by_class() -> None:
    labels, answers = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    assert count_correct_by_class(["a", "b", "c"], answers, labels) == {
        "a": (1, 2),
        "b": (2, 2),
        "c": (0, 1),
    }


def test_accuracy_is_over_images_and_the_worst_class_is_named() -> None:
    assert OUTCOME.accuracy == 15 / 20
    assert OUTCOME.worst_class == ("dog", 0.2)


def test_a_row_of_the_table_has_a_cell_for_each_column() -> None:
    cells = ["full retraining after each batch", "0.750", "0.200 (dog)", "12.3", "1,200"]
    assert build_comparison_table_rows([OUTCOME]) == [cells]
    head, _line, row = render_outcome_table([OUTCOME]).splitlines()
    assert head == f"| {' | '.join(COLUMNS)} |" and row == f"| {' | '.join(cells)} |"


def test_json_has_the_figures_unrounded() -> None:
    document = build_method_result_json(OUTCOME)
    assert (document["accuracy"], document["seconds_last_batch"]) == (0.75, 12.34)
    assert document["worst_class"] == {"class": "dog", "accuracy": 0.2}
    assert document["per_class"]["cat"] == [9, 10] and document["notes"] == ["held"]


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        (("lda",), 1000 * 0.1),
        (("lda", "logistic"), 1000 * 0.1),
        (("finetune",), TRAINING),
        (("finetune", "full"), 2 * TRAINING),
        (("perennial",), 1000 * 0.11),
        (tuple(WORDS), 1000 * 0.1 + 2 * TRAINING + 1000 * 0.11),
    ],
)
def test_an_estimate_adds_up_the_passes_of_its_rows(rows: tuple[str, ...], seconds: float) -> None:
    assert estimate_comparison_seconds(RATES, WORK, rows) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("rates", "rows", "words"),
    [
        (
            RATES,
            tuple(WORDS),
            "about 35 minutes on 2 cores; --without full about 19 minutes. Fewer images",
        ),
        (RATES, ("lda", "perennial"), "about 4 minutes on 2 cores."),
        (SecondsPerImage(0.001, 0.01, 0.0), ("lda",), "about 10 seconds on 2 cores."),
    ],
)
def test_an_estimate_says_how_to_make_it_shorter(
    rates: SecondsPerImage, rows: tuple[str, ...], words: str
) -> None:
    assert words in describe_estimated_comparison_time(rates, WORK, rows, 2)


def test_a_single_core_is_named_as_one() -> None:
    assert describe_estimated_comparison_time(RATES, WORK, ("lda",), 1).endswith("on 1 core.")
