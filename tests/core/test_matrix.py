"""R and its figures: the published oracle, the edge cases, and a slow second implementation."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.matrix import DEFINITIONS, Row, accuracy_matrix, path, summary

ROWS = [Row(0, None, None), Row(1, 1, 0), Row(2, 2, 1), Row(3, 3, 2)]
ORACLE = {0: (10, 20, 15), 1: (90, 90, 20), 2: (70, 85, 30), 3: (60, 80, 95)}
CELLS = {(v, j + 1): (correct, 100) for v, row in ORACLE.items() for j, correct in enumerate(row)}


def test_the_figures_of_a_matrix_worked_by_hand() -> None:
    figures = summary(ROWS, CELLS, 3, "data")
    assert figures["acc"] == pytest.approx(0.783333, abs=1e-6)
    assert figures["last"] == pytest.approx(0.783333, abs=1e-6)
    assert figures["average_incremental"] == pytest.approx(0.819444, abs=1e-6)
    assert figures["bwt"] == pytest.approx(-0.175)
    assert figures["fwt"] == pytest.approx(0.425)
    assert figures["forgetting"] == pytest.approx(0.175)
    assert figures["learning_accuracy"] == pytest.approx(0.90)


@pytest.mark.parametrize(("version", "last"), [(1, 0.9), (2, 0.775), (3, 0.783333)])
def test_the_oracle_accuracy_of_each_stage(version: int, last: float) -> None:
    assert summary(ROWS, CELLS, version, "task")["last"] == pytest.approx(last, abs=1e-6)


def test_the_matrix_has_a_row_per_version_and_null_where_nothing_was_measured() -> None:
    cells = {(0, 1): (1, 10), (1, 1): (9, 10), (2, 2): (5, 10), (2, 1): (0, 0)}
    assert accuracy_matrix(ROWS[:3], [1, 2], cells) == [[0.1, None], [0.9, None], [None, 0.5]]


def test_after_one_task_transfer_and_forgetting_are_undefined() -> None:
    figures = summary(ROWS[:2], CELLS, 1, "data")
    assert figures["bwt"] is figures["fwt"] is figures["forgetting"] is None
    assert figures["acc"] == figures["learning_accuracy"] == 0.9


def test_version_0_has_no_figures() -> None:
    assert summary(ROWS, CELLS, 0, "class") == {
        "acc": None,
        "last": None,
        "average_incremental": None,
        "bwt": None,
        "fwt": None,
        "forgetting": None,
        "learning_accuracy": None,
        "update_norm": [],
    }


def test_forward_transfer_is_null_in_the_class_scenario() -> None:
    assert summary(ROWS, CELLS, 3, "class")["fwt"] is None


def test_the_primary_accuracy_is_pooled_except_with_separate_heads() -> None:
    cells = {(1, 1): (90, 100), (2, 1): (90, 100), (2, 2): (1, 10)}
    assert summary(ROWS[:3], cells, 2, "class")["last"] == pytest.approx(91 / 110)
    assert summary(ROWS[:3], cells, 2, "task")["last"] == pytest.approx(0.5)
    assert summary(ROWS[:3], cells, 2, "class")["acc"] == pytest.approx(0.5)


def test_forgetting_starts_where_the_task_was_learned() -> None:
    """Task 2's best is its zero-shot 0.90 at stage 1; the default leaves that out."""
    assert summary(ROWS, CELLS, 3, "data")["forgetting"] == pytest.approx(0.175)


def test_forgetting_is_negative_when_old_tasks_improved() -> None:
    cells = {(1, 1): (50, 100), (2, 1): (70, 100), (2, 2): (90, 100)}
    assert summary(ROWS[:3], cells, 2, "data")["forgetting"] == pytest.approx(-0.2)


def test_an_empty_test_set_is_skipped_by_every_mean() -> None:
    cells = {key: value for key, value in CELLS.items() if key[1] != 2} | {(v, 2): (0, 0) for v in range(4)}
    figures = summary(ROWS, cells, 3, "data")
    assert figures["acc"] == pytest.approx((0.6 + 0.95) / 2)
    assert figures["learning_accuracy"] == pytest.approx((0.9 + 0.95) / 2)


def test_figures_go_along_the_ancestors_only() -> None:
    rows = [*ROWS[:3], Row(3, 3, 1)]  # task 3 was learned from version 1 after a rollback
    figures = summary(rows, CELLS, 3, "data")
    assert figures["acc"] == pytest.approx((0.6 + 0.95) / 2)
    assert [row.version for row in path(rows, 3)] == [0, 1, 3]


def test_a_task_learned_twice_is_one_column() -> None:
    rows = [*ROWS[:2], Row(2, 1, 1)]
    cells = {(1, 1): (50, 100), (2, 1): (80, 100)}
    figures = summary(rows, cells, 2, "data")
    assert figures["acc"] == pytest.approx(0.8)
    assert figures["bwt"] == pytest.approx(0.3)


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(KeyError):
        summary(ROWS, CELLS, 9, "data")


def test_update_norms_are_listed_by_stage() -> None:
    assert summary(ROWS, CELLS, 3, "data", {1: 1.5, 3: 0.5})["update_norm"] == [1.5, None, 0.5]


def test_every_figure_is_defined_in_words() -> None:
    assert set(summary(ROWS, CELLS, 3, "data")) | {"accuracy_matrix"} == set(DEFINITIONS)


def slow(r: list[list[float | None]], scenario: str, totals: list[int]) -> dict[str, Any]:
    """The definitions word by word over a square history: stage i learned task i; r[i][j-1]."""
    last = len(r) - 1

    def mean(values: list[float | None]) -> float | None:
        kept = [v for v in values if v is not None]
        return math.fsum(kept) / len(kept) if kept else None

    def minus(a: float | None, b: float | None) -> float | None:
        return a - b if a is not None and b is not None else None

    def primary(i: int) -> float | None:
        if scenario == "task":
            return mean([r[i][j - 1] for j in range(1, i + 1)])
        pairs = [(r[i][j - 1], totals[j - 1]) for j in range(1, i + 1)]
        weight = sum(n for a, n in pairs if a is not None)
        return math.fsum(a * n for a, n in pairs if a is not None) / weight if weight else None

    forgets = []
    for j in range(1, last):
        seen = [r[stage][j - 1] for stage in range(j, last) if r[stage][j - 1] is not None]
        now = r[last][j - 1]
        if seen and now is not None:
            forgets.append(max(a for a in seen if a is not None) - now)
    return {
        "acc": mean([r[last][j - 1] for j in range(1, last + 1)]),
        "last": primary(last) if last else None,
        "average_incremental": mean([primary(i) for i in range(1, last + 1)]),
        "bwt": mean([minus(r[last][j - 1], r[j][j - 1]) for j in range(1, last)]),
        "fwt": None
        if scenario == "class"
        else mean([minus(r[j - 1][j - 1], r[0][j - 1]) for j in range(2, last + 1)]),
        "forgetting": mean(list(forgets)),
        "learning_accuracy": mean([r[j][j - 1] for j in range(1, last + 1)]),
    }


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int | None]], list[int]]:
    tasks = draw(st.integers(0, 5))
    totals = draw(st.lists(st.integers(1, 50), min_size=tasks, max_size=tasks))
    cell = [st.none() | st.integers(0, n) for n in totals]
    return [[draw(c) for c in cell] for _ in range(tasks + 1)], totals


@given(histories(), st.sampled_from(["data", "task", "class"]))
def test_the_figures_equal_a_slow_obvious_computation(
    history: tuple[list[list[int | None]], list[int]], scenario: str
) -> None:
    correct, totals = history
    rows = [Row(0, None, None), *(Row(i, i, i - 1) for i in range(1, len(correct)))]
    cells = {
        (i, j + 1): (count, totals[j])
        for i, row in enumerate(correct)
        for j, count in enumerate(row)
        if count is not None
    }
    r = [[None if c is None else c / totals[j] for j, c in enumerate(row)] for row in correct]
    assert accuracy_matrix(rows, list(range(1, len(totals) + 1)), cells) == r
    figures = summary(rows, cells, len(rows) - 1, scenario)
    for name, expected in slow(r, scenario, totals).items():
        got = figures[name]
        assert got == expected if expected is None else got == pytest.approx(expected, abs=1e-12), name
