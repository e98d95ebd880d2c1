"""Comparison of two versions on the same images: what got worse, what got better, how certain that
is, and which images changed.

`compared_tasks.find` decides with the database what is compared. The functions here read blobs and
therefore run where an API process does its heavy work.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple

import numpy as np
from pydantic import JsonValue

from core.comparisons.compared_tasks import (
    ComparedTaskPredictions,
    ComparedVersionPair,
    SharedLabelNumbering,
    VersionToCompare,
    iterate_task_predictions_of_both_versions,
)
from core.contract.document import JsonObject
from core.contract.responses.versions import compare as answers
from core.contract.responses.versions.compare import (
    ClassFlips,
    ComparedImage,
    ComparedImagePage,
    ComparedVersion,
    CompareOut,
    ConfusedPair,
    Confusion,
    Difference,
    FlipKind,
    GivenAnswer,
    TaskFlips,
)
from core.database.measurements import NAMES
from core.errors import Invalid
from core.requests.pages import decode_page_cursor, encode_page_cursor
from core.statistics import flips
from core.statistics.flips import PredictionFlipCounts
from core.storage import Blobs

# A response has two matrices, whose sizes grow with the square of this number.
MAX_MATRIX = 200
"""Maximum number of classes of a confusion matrix."""
MAX_CLASSES = 1000
MAX_PAIRS = 100
_IDENTITY = {"format", "model", "name", "version", "parts", "recipe", *NAMES}
"""Fields of a manifest that are not compared, since they identify it or are reported elsewhere."""


def compare_version_predictions_and_recipes(blobs: Blobs, pair: ComparedVersionPair) -> CompareOut:
    """Return the counts of images on which two versions differ, and the differences of their
    recipes.

    Raises:
        StoredObjectDamaged: a file is missing or damaged.
    """
    words = SharedLabelNumbering(pair.scenario == "task")
    total, tasks = PredictionFlipCounts(), list[TaskFlips]()
    by_class: dict[int, PredictionFlipCounts] = {}
    confused: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    for predictions in iterate_task_predictions_of_both_versions(blobs, pair, words):
        a_correct, b_correct = (
            predictions.a == predictions.truth,
            predictions.b == predictions.truth,
        )
        task_flips = flips.count_prediction_flips(a_correct, b_correct)
        total += task_flips
        tasks.append(
            {
                "task": predictions.task.number,
                "name": predictions.task.name,
                **prediction_flip_statistics_to_json(task_flips),
            }
        )
        class_flips = flips.count_prediction_flips_by_group(
            predictions.truth, len(words.names), a_correct, b_correct
        )
        # The counts have a row for every class so far, and most classes have no image in one task.
        for number in np.flatnonzero(class_flips.sum(1)).tolist():
            by_class[number] = by_class.get(number, PredictionFlipCounts()) + PredictionFlipCounts(
                *class_flips[number].tolist()
            )
        for counter, predicted in zip(confused, (predictions.a, predictions.b), strict=True):
            counter.update(
                _count_images_by_true_and_predicted_label(
                    predictions.truth, predicted, len(words.names)
                )
            )
    classes = _list_prediction_flips_by_class(words, by_class)
    return {
        "model": pair.model,
        "a": _compared_version_to_json(pair.a),
        "b": _compared_version_to_json(pair.b),
        "totals": prediction_flip_statistics_to_json(total),
        "tasks": tasks,
        "classes": classes[:MAX_CLASSES],
        "classes_total": len(classes),
        "confusion": _build_compared_confusion_matrices(words, *confused),
        "pairs": _list_changed_confusions(words, *confused),
        "recipe": list_differing_json_values(
            _version_recipe_to_json(pair.a), _version_recipe_to_json(pair.b)
        ),
        "manifest": list_differing_json_values(
            _manifest_without_identity_to_json(pair.a), _manifest_without_identity_to_json(pair.b)
        ),
        "left_out": pair.left_out,
    }


def list_compared_images_of_flip_kind(
    blobs: Blobs,
    pair: ComparedVersionPair,
    *,
    kind: FlipKind,
    label: str | None,
    limit: int,
    cursor: str | None,
) -> ComparedImagePage:
    """Return a page of images that only one of two versions predicts correctly, or both predict
    wrongly.

    Args:
        kind: "negative", "positive" or "both_wrong".
        label: restrict the page to the images of this class.

    Raises:
        Invalid: no compared image has this label, or the cursor belongs to another list.
        StoredObjectDamaged: a file is missing or damaged.
    """
    after = _parse_image_cursor(cursor)
    if label is not None and all(label not in task.labels for task in pair.tasks):
        unknown = [{"field": "class", "message": "unknown"}]
        raise Invalid(
            f"No task that both versions answer has a class {label[:100]!r}.", fields=unknown
        )
    words, total = SharedLabelNumbering(pair.scenario == "task"), 0
    items: list[ComparedImage] = []
    more = False
    for predictions in iterate_task_predictions_of_both_versions(blobs, pair, words):
        rows = _find_image_rows_of_flip_kind(predictions, kind, label, words)
        total += len(rows)
        for row in rows.tolist():
            if (predictions.task.number, row) <= after:
                continue
            if len(items) == limit:
                # Only this task ends here: `total` counts the images of all tasks.
                more = True
                break
            items.append(_build_compared_image_response(pair, predictions, row, words))
    last = items[-1] if more else None
    return {
        "items": items,
        "total": total,
        "next_cursor": None
        if last is None
        else encode_page_cursor(f"{last['task']}.{last['index']}"),
    }


def list_differing_json_values(
    a: Mapping[str, JsonValue], b: Mapping[str, JsonValue], way: str = ""
) -> list[Difference]:
    """Return the values that differ between two objects, sorted by path.

    Args:
        way: prefix of the paths.
    """
    changes: list[Difference] = []
    for name in sorted({*a, *b}):
        old, new, path = a.get(name), b.get(name), f"{way}{name}"
        if isinstance(old, dict) and isinstance(new, dict):
            changes += list_differing_json_values(old, new, f"{path}.")
        elif old != new:
            changes.append({"path": path, "a": old, "b": new})
    return changes


def prediction_flip_statistics_to_json(counts: PredictionFlipCounts) -> answers.Flips:
    """Return counts of changed predictions with the negative flip rate, its interval and McNemar's
    p value.
    """
    interval = flips.compute_wilson_interval(counts.negative, counts.n)
    return {
        **_prediction_flip_counts_to_json(counts),
        "nfr": counts.negative_flip_rate,
        "nfr_interval": None if interval is None else list(interval),
        "mcnemar_p": flips.compute_two_sided_mcnemar_p(counts.negative, counts.positive),
    }


def _prediction_flip_counts_to_json(counts: PredictionFlipCounts) -> answers.FlipCounts:
    """Convert counts of prediction changes between two versions to JSON, without derived
    statistics.
    """
    both_right, negative, positive, both_wrong = astuple(counts)
    return {
        "n": counts.n,
        "both_right": both_right,
        "negative": negative,
        "positive": positive,
        "both_wrong": both_wrong,
    }


def _list_prediction_flips_by_class(
    words: SharedLabelNumbering, by_class: Mapping[int, PredictionFlipCounts]
) -> list[ClassFlips]:
    """Return counts of prediction changes between two versions for each class, largest net loss
    first.
    """

    def get_sort_key_of_class_flips(number: int) -> tuple[bool, int, int, str, int]:
        class_flips = by_class[number]
        balance = class_flips.positive - class_flips.negative
        task, label = words.names[number]
        flipped = class_flips.positive + class_flips.negative
        # Label and task at the end, so that equal counts have the same order in every response.
        return not flipped, balance if balance < 0 else 0, -flipped, label, task or 0

    return [
        {
            "label": words.names[number][1],
            "task": words.names[number][0],
            **_prediction_flip_counts_to_json(by_class[number]),
        }
        for number in sorted(by_class, key=get_sort_key_of_class_flips)
    ]


def _count_images_by_true_and_predicted_label(
    truth: np.ndarray, predicted_labels: np.ndarray, size: int
) -> dict[tuple[int, int], int]:
    """Count images by pair of true and predicted label."""
    # One number for each pair, because numpy counts numbers much faster than Python counts pairs.
    codes, counts = np.unique(truth * size + predicted_labels, return_counts=True)
    return {
        divmod(code, size): count
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
    }


def _build_compared_confusion_matrices(
    words: SharedLabelNumbering, a: Counter[tuple[int, int]], b: Counter[tuple[int, int]]
) -> Confusion | None:
    """Return the confusion matrices of two versions, or None for too many classes or several tasks."""
    numbers = sorted(
        {number for key in (*a, *b) for number in key}, key=lambda number: words.names[number][1]
    )
    # Several tasks have labels of their own only if each has its own head, and heads are never
    # confused with each other.
    if len(numbers) > MAX_MATRIX or len({words.names[number][0] for number in numbers}) > 1:
        return None
    index_by_number = {number: i for i, number in enumerate(numbers)}

    def build_count_matrix(counter: Counter[tuple[int, int]]) -> list[list[int]]:
        rows = np.zeros((len(numbers), len(numbers)), np.int64)
        for (truth, predicted), count in counter.items():
            rows[index_by_number[truth], index_by_number[predicted]] = count
        # Numpy's integers cannot be encoded as JSON.
        return [[int(count) for count in row] for row in rows]

    return {
        "labels": [words.names[number][1] for number in numbers],
        "a": build_count_matrix(a),
        "b": build_count_matrix(b),
    }


def _list_changed_confusions(
    words: SharedLabelNumbering, a: Counter[tuple[int, int]], b: Counter[tuple[int, int]]
) -> list[ConfusedPair]:
    """Return the (true class, wrong prediction) pairs whose image counts differ most between two
    versions.
    """
    wrong = [key for key in {*a, *b} if key[0] != key[1]]
    # The names at the end give equal counts the same order in every response.
    wrong.sort(
        key=lambda key: (
            -abs(b[key] - a[key]),
            -max(a[key], b[key]),
            *map(words.names.__getitem__, key),
        )
    )
    return [
        {
            "task": words.names[truth][0],
            "label": words.names[truth][1],
            "answer": words.names[predicted][1],
            "a": a[truth, predicted],
            "b": b[truth, predicted],
        }
        for truth, predicted in wrong[:MAX_PAIRS]
    ]


def _find_image_rows_of_flip_kind(
    predictions: ComparedTaskPredictions,
    kind: FlipKind,
    label: str | None,
    words: SharedLabelNumbering,
) -> np.ndarray:
    """Return the numbers of the images that match a filter on how two versions' predictions differ,
    ascending.
    """
    a_right, b_right = predictions.a == predictions.truth, predictions.b == predictions.truth
    selected = {
        "negative": a_right & ~b_right,
        "positive": b_right & ~a_right,
        "both_wrong": ~a_right & ~b_right,
    }[kind]
    if label is not None:
        selected &= (
            predictions.truth
            == words.convert_labels_to_numbers(predictions.task.number, [label])[0]
        )
    return np.flatnonzero(selected)


def _build_compared_image_response(
    pair: ComparedVersionPair,
    predictions: ComparedTaskPredictions,
    row: int,
    words: SharedLabelNumbering,
) -> ComparedImage:
    def build_compared_prediction(
        predicted_labels: np.ndarray, probability: np.ndarray
    ) -> GivenAnswer:
        """Build a response entry with one version's prediction of an image: its label and its
        probability.
        """
        value = float(probability[row])
        return {
            "label": words.names[int(predicted_labels[row])][1],
            # JSON has no NaN.
            "probability": value if np.isfinite(value) else None,
        }

    task = predictions.task.number
    return {
        "task": task,
        "index": row,
        "label": words.names[int(predictions.truth[row])][1],
        "a": build_compared_prediction(predictions.a, predictions.p_a),
        "b": build_compared_prediction(predictions.b, predictions.p_b),
        "image": f"/v1/models/{pair.model}/tasks/{task}/images/held_out/{row}.png",
    }


def _parse_image_cursor(cursor: str | None) -> tuple[int, int]:
    """Parse a page cursor into the (task, image) after which the next page of compared images
    begins.
    """
    if cursor is None:
        return (0, -1)
    task, point, row = str(decode_page_cursor(cursor, str)).partition(".")
    # `isdigit` alone also accepts characters that `int` refuses, such as ².
    if not (point and task.isascii() and task.isdigit() and row.isascii() and row.isdigit()):
        raise Invalid(
            "This is no cursor of such a list.", fields=[{"field": "cursor", "message": "unknown"}]
        )
    return int(task), int(row)


def _compared_version_to_json(side: VersionToCompare) -> ComparedVersion:
    return {"version": side.number, "parent": side.parent, "task": side.task, "status": side.status}


def _version_recipe_to_json(side: VersionToCompare) -> JsonObject:
    return side.manifest.recipe.to_json() if side.manifest.recipe is not None else {}


def _manifest_without_identity_to_json(side: VersionToCompare) -> JsonObject:
    manifest = side.manifest.to_json()
    return {name: value for name, value in manifest.items() if name not in _IDENTITY}
