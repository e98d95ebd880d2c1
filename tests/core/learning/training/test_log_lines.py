"""Accuracy in words, however many tasks there are."""

from core.contract.jobs.job_result import MeasuredMatrixCell
from core.learning.training.log_lines import MAX_TASKS, format_accuracy_by_task_line


def make_cell(task: int, correct: int, version: str = "new", total: int = 10) -> MeasuredMatrixCell:
    return MeasuredMatrixCell(
        version=version, task=task, correct=correct, total=total, per_class={}
    )


def test_few_tasks_are_told_one_by_one() -> None:
    rows = [make_cell(1, 0, "base"), make_cell(2, 9), make_cell(1, 8)]
    assert (
        format_accuracy_by_task_line(rows, 2)
        == "Accuracy of the new version: task 1 80.0% (8 of 10), task 2 90.0% (9 of 10)."
    )


def test_of_many_tasks_the_new_one_the_mean_and_the_worst_are_told() -> None:
    rows = [make_cell(number, 3 if number == 7 else 8) for number in range(1, MAX_TASKS + 2)]
    said = format_accuracy_by_task_line(rows, MAX_TASKS + 1)
    assert said == (
        "Accuracy of the new version: task 13 80.0% (8 of 10), 76.2% on average of 13 tasks,"
        " least of task 7: 30.0% (3 of 10)."
    )


def test_without_a_held_out_image_accuracy_is_not_known() -> None:
    assert "not known" in format_accuracy_by_task_line(
        [make_cell(1, 3, "parent"), make_cell(2, 0, total=0)], 2
    )
