"""Labels that the numbers in a task's datasets stand for."""

from collections.abc import Iterable

from core.database.tables import Model


def order_task_labels_by_dataset_number(model: Model, classes: Iterable[str]) -> list[str]:
    """Return the class labels of a task in the order of their numbers in its datasets.

    Args:
        classes: labels of the task.
    """
    return list(model.classes or []) if model.scenario == "data" else sorted(classes)
