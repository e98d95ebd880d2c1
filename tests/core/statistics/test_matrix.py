"""R and its figures: the worked oracle, the edge cases, and a slow second implementation."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics.matrix import (
    AccuracyMatrixVersion,
    LineageAccuracyMatrix,
    build_accuracy_matrix,
    compute_regression_and_improvement_rates,
    find_learned_classes_without_test_images,
    find_single_class_tasks,
    list_matrix_rows_of_lineage,
    summarise_lineage_accuracy_matrix,
)

ROWS = [
    AccuracyMatrixVersion(0, None, None),
    AccuracyMatrixVersion(1, 1, 0),
    AccuracyMatrixVersion(2, 2, 1),
    AccuracyMatrixVersion(3, 3, 2),
]
ORACLE = {0: (10, 20, 15), 1: (90, 90, 20), 2: (70, 85, 30), 3: (60, 80, 95)}
CELLS = {(v, j + 1): (correct, 100) for v, row in ORACLE.items() for j, correct in enumerate(row)}


def compute_summary(rows: Any, cells: Any, version: int, scenario: str, **counts: Any) -> Any:
    """Return the figures that follow from R along the ancestors of a version."""
    return summarise_lineage_accuracy_matrix(
        LineageAccuracyMatrix(rows, cells, version, scenario), **counts
    )


def test_the_figures_of_a_matrix_worked_by_hand() -> None:
    figures = compute_summary(ROWS, CELLS, 3, "data")
    assert figures["acc"] == pytest.approx(0.783333, abs=1e-6)
    assert figures["last"] == pytest.approx(0.783333, abs=1e-6)
    assert figures["average_incremental"] == pytest.approx(0.819444, abs=1e-6)
    assert figures["bwt"] == pytest.approx(-0.175)
    assert figures["fwt"] == pytest.approx(0.425)
    assert figures["forgetting"] == pytest.approx(0.175)
    assert figures["forgetting_literal"] == pytest.approx(0.20)
    assert figures["learning_accuracy"] == pytest.approx(0.90)


@pytest.mark.parametrize(("version", "last"), [(1, 0.9), (2, 0.775), (3, 0.783333)])
def test_the_oracle_accuracy_of_each_stage(version: int, last: float) -> None:
    assert compute_summary(ROWS, CELLS, version, "task")["last"] == pytest.approx(last, abs=1e-6)


def test_the_matrix_has_a_row_per_version_and_null_where_nothing_was_measured() -> None:
    cells = {(0, 1): (1, 10), (1, 1): (9, 10), (2, 2): (5, 10), (2, 1): (0, 0)}
    assert build_accuracy_matrix(ROWS[:3], [1, 2], cells) == [[0.1, None], [0.9, None], [None, 0.5]]


def test_after_one_task_transfer_and_forgetting_are_undefined() -> None:
    figures = compute_summary(ROWS[:2], CELLS, 1, "data")
    assert figures["bwt"] is figures["fwt"] is figures["forgetting"] is None
    assert figures["acc"] == figures["learning_accuracy"] == 0.9


def test_version_0_has_no_figures() -> None:
    figures = compute_summary(ROWS, CELLS, 0, "class")
    assert {name: value for name, value in figures.items() if value is not None} == {
        "by_stage": [],
        "forgetting_by_stage": [],
        "per_task": [],
    }


def test_forward_transfer_is_null_in_the_class_scenario() -> None:
    assert compute_summary(ROWS, CELLS, 3, "class")["fwt"] is None


def test_the_primary_accuracy_is_pooled_except_with_separate_heads() -> None:
    cells = {(1, 1): (90, 100), (2, 1): (90, 100), (2, 2): (1, 10)}
    assert compute_summary(ROWS[:3], cells, 2, "class")["last"] == pytest.approx(91 / 110)
    assert compute_summary(ROWS[:3], cells, 2, "task")["last"] == pytest.approx(0.5)
    assert compute_summary(ROWS[:3], cells, 2, "class")["acc"] == pytest.approx(0.5)


def test_forgetting_starts_where_the_task_was_learned() -> None:
    """Task 2's best is its zero-shot 0.90 at stage 1; only the literal definition counts that."""
    stages = LineageAccuracyMatrix(ROWS, CELLS, 3, "data")
    assert stages.compute_task_forgetting(2, 3) == pytest.approx(0.05)
    assert stages.compute_task_forgetting(2, 3, literal=True) == pytest.approx(0.10)


def test_literal_forgetting_does_not_count_version_0() -> None:
    cells = {(0, 1): (99, 100), (1, 1): (50, 100), (2, 1): (40, 100)}
    assert LineageAccuracyMatrix(ROWS[:3], cells, 2, "data").compute_mean_forgetting(
        2, literal=True
    ) == pytest.approx(0.1)


def test_forgetting_is_told_for_every_stage_and_task() -> None:
    figures = compute_summary(ROWS, CELLS, 3, "data")
    assert figures["forgetting_by_stage"] == pytest.approx([0.2, 0.175])
    assert [(t["task"], t["when_learned"], t["now"]) for t in figures["per_task"]] == [
        (1, 0.9, 0.6),
        (2, 0.85, 0.8),
        (3, 0.95, 0.95),
    ]
    assert [t["forgetting"] for t in figures["per_task"]] == [
        pytest.approx(0.3),
        pytest.approx(0.05),
        None,
    ]


def test_forgetting_is_negative_when_old_tasks_improved() -> None:
    cells = {(1, 1): (50, 100), (2, 1): (70, 100), (2, 2): (90, 100)}
    assert compute_summary(ROWS[:3], cells, 2, "data")["forgetting"] == pytest.approx(-0.2)


def test_an_empty_test_set_is_skipped_by_every_mean() -> None:
    cells = {key: value for key, value in CELLS.items() if key[1] != 2} | {
        (v, 2): (0, 0) for v in range(4)
    }
    figures = compute_summary(ROWS, cells, 3, "data")
    assert figures["acc"] == pytest.approx((0.6 + 0.95) / 2)
    assert figures["learning_accuracy"] == pytest.approx((0.9 + 0.95) / 2)


def test_figures_go_along_the_ancestors_only() -> None:
    rows = [
        *ROWS[:3],
        AccuracyMatrixVersion(3, 3, 1),
    ]  # task 3 was learned from version 1 after a rollback
    figures = compute_summary(rows, CELLS, 3, "data")
    assert figures["acc"] == pytest.approx((0.6 + 0.95) / 2)
    assert [row.version for row in list_matrix_rows_of_lineage(rows, 3)] == [0, 1, 3]


def test_a_task_learned_twice_is_one_column() -> None:
    rows = [*ROWS[:2], AccuracyMatrixVersion(2, 1, 1)]
    cells = {(1, 1): (50, 100), (2, 1): (80, 100)}
    figures = compute_summary(rows, cells, 2, "data")
    assert figures["acc"] == pytest.approx(0.8)
    assert figures["bwt"] == pytest.approx(0.3)


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(KeyError):
        compute_summary(ROWS, CELLS, 9, "data")


def test_each_stage_has_its_primary_accuracy() -> None:
    assert compute_summary(ROWS, CELLS, 3, "task")["by_stage"] == pytest.approx(
        [0.9, 0.775, 0.783333], abs=1e-6
    )


def test_zero_heads_of_unlearned_tasks_make_no_forward_transfer() -> None:
    assert LineageAccuracyMatrix(ROWS, CELLS, 3, "task").compute_forward_transfer() is None
    assert LineageAccuracyMatrix(
        ROWS, CELLS, 3, "task", zero_heads=False
    ).compute_forward_transfer() == pytest.approx(0.425)


def test_on_one_common_test_set_only_accuracies_are_defined() -> None:
    """Every stage is measured on the same images, so the columns are equal."""
    cells = {
        (v, j): (correct, 100) for v, correct in enumerate((10, 60, 50, 70)) for j in (1, 2, 3)
    }
    stages = LineageAccuracyMatrix(ROWS, cells, 3, "data", slices=False)
    assert [
        stages.compute_pooled_accuracy(3),
        stages.compute_mean_task_accuracy(3),
    ] == pytest.approx([0.7, 0.7])
    assert stages.list_accuracies_by_stage() == pytest.approx([0.6, 0.5, 0.7])
    assert (
        stages.compute_backward_transfer()
        is stages.compute_forward_transfer()
        is stages.compute_mean_forgetting(3)
        is None
    )


def test_macro_accuracy_weighs_classes_and_leaves_out_those_without_images() -> None:
    counts = {(2, 1): {"ant": [9, 10], "bee": [0, 0]}, (2, 2): {"cat": [10, 100]}}
    assert compute_summary(ROWS[:3], CELLS, 2, "class", per_class=counts)["macro"] == pytest.approx(
        0.5
    )


def test_a_class_of_two_tasks_counts_once_except_with_a_head_each() -> None:
    counts = {(2, 1): {"ant": [10, 10], "bee": [0, 10]}, (2, 2): {"bee": [20, 30]}}
    assert LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "class").compute_mean_class_accuracy(
        2, counts
    ) == pytest.approx((1 + 0.5) / 2)
    assert LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "task").compute_mean_class_accuracy(
        2, counts
    ) == pytest.approx((1 + 0 + 2 / 3) / 3)


def test_classes_without_test_images_are_listed() -> None:
    counts = {(2, 1): {"ant": [9, 10]}, (2, 2): {"cat": [10, 100], "dog": [0, 0]}}
    classes = {1: ["bee", "ant"], 2: ["bee", "cat", "dog"], 3: ["never learned here"]}
    stages = LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "class")
    assert find_learned_classes_without_test_images(stages, counts, classes) == [
        {"task": 1, "class": "bee"},
        {"task": 2, "class": "dog"},
    ]


def test_classes_of_a_task_without_any_test_image_are_listed() -> None:
    counts = {(2, 1): {"ant": [9, 10]}}
    classes = {1: ["ant"], 2: ["bee", "ant"]}
    stages = LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "class")
    assert find_learned_classes_without_test_images(stages, counts, classes) == [
        {"task": 2, "class": "bee"}
    ]
    assert find_learned_classes_without_test_images(stages, counts | {(2, 2): {}}, classes) == [
        {"task": 2, "class": "bee"}
    ]


def test_a_task_that_was_measured_before_its_test_images_went_is_not_listed() -> None:
    counts = {(1, 1): {"ant": [9, 10]}, (2, 2): {"bee": [1, 2]}}
    assert (
        find_learned_classes_without_test_images(
            LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "class"), counts, {1: ["ant"], 2: ["bee"]}
        )
        == []
    )


def test_a_class_that_another_task_measures_is_not_listed() -> None:
    counts = {(2, 1): {"ant": [9, 10]}, (2, 2): {"bee": [1, 2]}}
    classes = {1: ["ant", "bee"], 2: ["bee"]}
    assert (
        find_learned_classes_without_test_images(
            LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "class"), counts, classes
        )
        == []
    )
    assert find_learned_classes_without_test_images(
        LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "task"), counts, classes
    ) == [{"task": 1, "class": "bee"}]


@pytest.mark.parametrize(
    ("scenario", "classes", "flagged"),
    [
        ("class", {1: ["ant"], 2: ["ant"]}, [1, 2]),
        ("class", {1: ["ant"], 2: ["bee"]}, []),
        ("task", {1: ["ant"], 2: ["bee", "cat"]}, [1]),
    ],
)
def test_tasks_with_a_single_class_to_answer_are_degenerate(scenario, classes, flagged) -> None:
    assert (
        find_single_class_tasks(LineageAccuracyMatrix(ROWS[:3], CELLS, 2, scenario), classes)
        == flagged
    )


def test_intransigence_compares_with_a_joint_reference_at_each_stage() -> None:
    stages = LineageAccuracyMatrix(ROWS, CELLS, 3, "class")
    assert stages.compute_intransigence([0.95, 0.80, 0.97]) == pytest.approx([0.05, -0.05, 0.02])
    figures = compute_summary(ROWS, CELLS, 3, "class", reference=[0.95, 0.80, 0.97])
    assert figures["intransigence"] == pytest.approx(0.02 / 3)
    assert figures["intransigence_last"] == pytest.approx(0.02)


def test_the_gap_to_joint_training_is_a_curve_whose_end_is_the_figure() -> None:
    figures = compute_summary(ROWS, CELLS, 3, "task", joint=[0.90, 0.90, 0.90])
    assert figures["gap_by_stage"] == pytest.approx([0.0, 0.125, 0.116667], abs=1e-6)
    assert figures["gap_to_joint"] == pytest.approx(0.116667, abs=1e-6)


def test_the_gap_of_joint_training_to_itself_is_zero() -> None:
    joint = LineageAccuracyMatrix(ROWS, CELLS, 3, "class").list_accuracies_by_stage()
    assert compute_summary(ROWS, CELLS, 3, "class", joint=joint)["gap_by_stage"] == [0.0, 0.0, 0.0]


def test_without_a_reference_gap_and_intransigence_are_null() -> None:
    figures = compute_summary(ROWS, CELLS, 3, "class")
    assert figures["gap_to_joint"] is figures["gap_by_stage"] is figures["intransigence"] is None


def test_gap_and_intransigence_are_defined_after_the_first_task() -> None:
    figures = compute_summary(ROWS[:2], CELLS, 1, "class", joint=[0.95], reference=[0.95])
    assert figures["gap_to_joint"] == figures["intransigence"] == pytest.approx(0.05)


def test_a_reference_needs_a_value_for_every_stage() -> None:
    with pytest.raises(ValueError, match="zip"):
        LineageAccuracyMatrix(ROWS, CELLS, 3, "class").compute_gap_to_joint([0.9])


def test_a_stage_that_the_reference_lacks_has_no_gap() -> None:
    assert LineageAccuracyMatrix(ROWS[:3], CELLS, 2, "task").compute_gap_to_joint([None, 0.8]) == [
        None,
        pytest.approx(0.025),
    ]


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=20), max_size=4))
def test_improvement_minus_regression_is_the_change_of_accuracy(
    tasks: list[list[tuple[bool, bool]]],
) -> None:
    changes = [
        (sum(b and not a for b, a in t), sum(a and not b for b, a in t), len(t)) for t in tasks
    ]
    regression, improvement = compute_regression_and_improvement_rates(changes)
    images = [pair for task in tasks for pair in task]
    if not images:
        assert regression is improvement is None
        return
    before, after = (sum(column) / len(images) for column in zip(*images, strict=True))
    assert improvement is not None and regression is not None
    assert improvement - regression == pytest.approx(after - before, abs=1e-12)
    gained = sum(i for _, i, _ in changes) - sum(r for r, _, _ in changes)
    assert gained == sum(a for _, a in images) - sum(b for b, _ in images)  # exact in counts


def compute_summary_slowly(
    r: list[list[float | None]], scenario: str, totals: list[int]
) -> dict[str, Any]:
    """Compute the definitions word by word over a square history.
    Stage i learned task i; its accuracies are r[i][j-1].
    """
    last = len(r) - 1

    def compute_mean(values: list[float | None]) -> float | None:
        kept = [v for v in values if v is not None]
        return math.fsum(kept) / len(kept) if kept else None

    def subtract_values(a: float | None, b: float | None) -> float | None:
        return a - b if a is not None and b is not None else None

    def compute_primary_accuracy(i: int) -> float | None:
        return (
            compute_mean([r[i][j - 1] for j in range(1, i + 1)])
            if scenario == "task"
            else pool_task_accuracies(i)
        )

    def pool_task_accuracies(i: int) -> float | None:
        pairs = [(r[i][j - 1], totals[j - 1]) for j in range(1, i + 1)]
        weight = sum(n for a, n in pairs if a is not None)
        return math.fsum(a * n for a, n in pairs if a is not None) / weight if weight else None

    forgets = []
    for j in range(1, last):
        seen = [r[stage][j - 1] for stage in range(j, last) if r[stage][j - 1] is not None]
        now = r[last][j - 1]
        if seen and now is not None:
            forgets.append(max(a for a in seen if a is not None) - now)

    def compute_literal_forgetting(j: int) -> float | None:
        best = [r[stage][j - 1] for stage in range(1, last) if r[stage][j - 1] is not None]
        return subtract_values(
            max((a for a in best if a is not None), default=None), r[last][j - 1]
        )

    return {
        "acc": compute_mean([r[last][j - 1] for j in range(1, last + 1)]),
        "last": compute_primary_accuracy(last) if last else None,
        "average_incremental": compute_mean(
            [compute_primary_accuracy(i) for i in range(1, last + 1)]
        ),
        "bwt": compute_mean([subtract_values(r[last][j - 1], r[j][j - 1]) for j in range(1, last)]),
        "fwt": None
        if scenario != "data"
        else compute_mean(
            [subtract_values(r[j - 1][j - 1], r[0][j - 1]) for j in range(2, last + 1)]
        ),
        "forgetting": compute_mean(list(forgets)),
        "forgetting_literal": compute_mean([compute_literal_forgetting(j) for j in range(1, last)]),
        "pooled": pool_task_accuracies(last) if last else None,
        "learning_accuracy": compute_mean([r[j][j - 1] for j in range(1, last + 1)]),
    }


@st.composite
def draw_histories(draw: st.DrawFn) -> tuple[list[list[int | None]], list[int]]:
    tasks = draw(st.integers(0, 5))
    totals = draw(st.lists(st.integers(1, 50), min_size=tasks, max_size=tasks))
    cell = [st.none() | st.integers(0, n) for n in totals]
    return [[draw(c) for c in cell] for _ in range(tasks + 1)], totals


@given(draw_histories(), st.sampled_from(["data", "task", "class"]))
def test_the_figures_equal_a_slow_obvious_computation(
    history: tuple[list[list[int | None]], list[int]], scenario: str
) -> None:
    correct, totals = history
    rows = [
        AccuracyMatrixVersion(0, None, None),
        *(AccuracyMatrixVersion(i, i, i - 1) for i in range(1, len(correct))),
    ]
    cells = {
        (i, j + 1): (count, totals[j])
        for i, row in enumerate(correct)
        for j, count in enumerate(row)
        if count is not None
    }
    r = [[None if c is None else c / totals[j] for j, c in enumerate(row)] for row in correct]
    assert build_accuracy_matrix(rows, list(range(1, len(totals) + 1)), cells) == r
    figures = compute_summary(rows, cells, len(rows) - 1, scenario)
    for name, expected in compute_summary_slowly(r, scenario, totals).items():
        got = figures[name]
        assert got == expected if expected is None else got == pytest.approx(expected, abs=1e-12), (
            name
        )
