"""Losses beside production, counted by a publish from the answers of its versions, against slow
loops over images.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from core.database.measurements import LOSSES
from core.database.tables import Alias, Model, Task, Version, VersionMeasurement, VersionTaskResult
from core.learning.evaluation import stored_predictions
from core.learning.problems.class_predictions import (
    ClassPredictions,
    choose_row_number_dtype,
    find_running_maximum_columns,
)
from core.lineage.checks import NEW_GATE
from core.publishing.publish import publish_or_hold_job_result
from core.storage import Blobs
from tests.core.desk import Desk

IMAGES = 30
CLASSES = [["1a", "1b"], ["2a", "2b"], ["3a", "3b"]]
"""New classes of each task."""


class Stream:
    """Versions of a model whose answers are drawn at random; scores [N, C] and true rows [N] by
    version and task.
    """

    def __init__(self, desk: Desk, **values: Any) -> None:
        self.desk = desk
        self.model = desk.model(**{"gate": NEW_GATE, **values})
        self.scores: dict[tuple[int, int], torch.Tensor] = {}
        self.targets: dict[int, torch.Tensor] = {}
        self.generator = torch.Generator().manual_seed(3)

    def learn(self, *, right: float = 3.0, ranked: bool = True) -> dict[str, Any]:
        """Publish the next version, whose scores of the true class are `right` higher; what was
        counted of it.
        """
        _, claim = self.desk.begin(self.model)
        number = claim.task_number or 0
        width = 2 * number
        targets = torch.randint(width - 2, width, (IMAGES,), generator=self.generator)
        self.targets[number] = targets
        for task in range(1, number + 1):
            scores = torch.randn(IMAGES, width, generator=self.generator)
            scores[torch.arange(IMAGES), self.targets[task]] += right
            self.scores[number, task] = scores
        answers = {
            ("new", task): self._answers(number, task, ranked) for task in range(1, number + 1)
        }
        answers |= {
            ("parent", task): self._answers(number - 1, task, ranked) for task in range(1, number)
        }
        result = self._result(number, answers)
        published = publish_or_hold_job_result(self.desk.db, self.desk.store, claim, result)
        return self._counted(published.number)

    def _result(self, number: int, answers: Any) -> Path:
        cells = [("new", task, self._right(number, task), IMAGES) for task in range(1, number + 1)]
        classes = [label for of in CLASSES[:number] for label in of]
        result = self.desk.result({"head": f"h{number}"}, cells, classes=classes)
        files = [
            file.to_json() for file in stored_predictions.write_prediction_file(result, answers)
        ]
        document = json.loads((result / "result.json").read_text())
        (result / "result.json").write_text(json.dumps({**document, "answers": files}))
        return result

    def _answers(self, version: int, task: int, ranked: bool) -> ClassPredictions:
        scores = self.scores[version, task]
        rows = scores.argmax(1).int()
        if not ranked:
            return ClassPredictions(rows, torch.ones(IMAGES).half())
        integers = choose_row_number_dtype(scores.shape[1])
        leaders, counts = find_running_maximum_columns(scores)
        kept = (self.targets[task].to(integers), leaders.to(integers), counts.to(integers))
        return ClassPredictions(rows, torch.ones(IMAGES).half(), *kept)

    def _right(self, version: int, task: int) -> int:
        return int((self.scores[version, task].argmax(1) == self.targets[task]).sum())

    def _counted(self, version: int) -> dict[str, Any]:
        (row,) = self.desk.all(
            VersionMeasurement, model_id=self.model, version=version, name=LOSSES
        )
        found: dict[str, Any] = row.detail
        return found

    def version(self, number: int) -> Version:
        (row,) = self.desk.all(Version, model_id=self.model, number=number)
        found: Version = row
        return found

    def images(self, task: int, old: int, new: int) -> list[tuple[int, int, int, int]]:
        """(true row, old answer, new answer among the old's classes, new answer) of each image, one
        after the other.
        """
        found = []
        for i in range(IMAGES):
            before = self.scores[old, task][i].tolist()
            now = self.scores[new, task][i].tolist()
            known = now[: len(before)]
            found.append(
                (
                    int(self.targets[task][i]),
                    before.index(max(before)),
                    known.index(max(known)),
                    now.index(max(now)),
                )
            )
        return found


@pytest.fixture
def stream(desk: Desk) -> Stream:
    return Stream(desk)


def test_a_first_version_has_nothing_to_be_compared_with(stream: Stream) -> None:
    counted = stream.learn()
    for name in ("forgotten", "confused", "class_lost"):
        assert counted[name]["missing"] == "production is version 0, which was taught nothing"
    right = int((stream.scores[1, 1].argmax(1) == stream.targets[1]).sum())
    assert (counted["new"]["images"], counted["new"]["positive"]) == (IMAGES, right)


def test_the_counts_are_those_of_a_loop_over_all_images(stream: Stream) -> None:
    stream.learn()
    stream.learn()
    counted = stream.learn(right=0.5)
    forgotten, confused = Counter[str](), Counter[str]()
    before, now = Counter[str](), Counter[str]()
    names = [label for of in CLASSES for label in of]
    for task in (1, 2):
        for truth, old, best, answer in stream.images(task, 2, 3):
            forgotten["negative"] += old == truth != best
            forgotten["positive"] += best == truth != old
            confused["negative"] += old == truth and answer >= 4
            before[names[truth]] += old == truth
            now[names[truth]] += answer == truth
    for name, expected in (("forgotten", forgotten), ("confused", confused)):
        assert counted[name]["images"] == 2 * IMAGES
        assert {key: counted[name][key] for key in expected} == dict(expected)
    by_class = {one["label"]: one for one in counted["class_lost"]["classes"]}
    assert set(by_class) == {"1a", "1b", "2a", "2b"}
    for label, one in by_class.items():
        assert one["before"] == before[label]
        assert one["before"] - one["negative"] + one["positive"] == now[label]


def test_pictures_are_images_that_turned_wrong(stream: Stream) -> None:
    stream.learn()
    counted = stream.learn(right=-3.0)
    names = [label for of in CLASSES[:2] for label in of]
    assert counted["class_lost"]["pictures"]
    for picture in counted["class_lost"]["pictures"]:
        truth, old, _, answer = stream.images(picture["task"], 1, 2)[picture["index"]]
        assert (picture["label"], picture["before"], picture["now"]) == (
            names[truth],
            names[old],
            names[answer],
        )
        assert old == truth != answer


def test_drift_is_counted_beside_the_best_version_of_each_task(stream: Stream) -> None:
    stream.learn(right=6.0)
    stream.learn(right=2.0)
    counted = stream.learn(right=1.0)
    for one in counted["drifted"]["tasks"]:
        versions = range(one["task"], 3)
        best = max(versions, key=lambda version: (stream._right(version, one["task"]), version))
        images = stream.images(one["task"], best, 3)
        assert one["against"] == best
        assert one["negative"] == sum(old == truth != kept for truth, old, kept, _ in images)
        assert one["positive"] == sum(kept == truth != old for truth, old, kept, _ in images)
    assert counted["drifted"]["compared"] == 2


def test_a_version_that_lost_its_classes_is_held_and_a_calm_one_is_not(stream: Stream) -> None:
    stream.learn(right=8.0)
    stream.learn(right=8.0)
    assert stream.version(2).status == "published"
    stream.learn(right=-8.0)
    held = stream.version(3)
    assert held.status == "held"
    failed = {check["name"] for check in held.gate["checks"] if not check["passed"]}
    assert {"forgotten", "class_lost", "drifted", "learned_nothing"} <= failed
    assert held.gate["visible"]["images"] == 2 * IMAGES


def test_production_that_a_person_put_elsewhere_is_read_from_the_store(stream: Stream) -> None:
    stream.learn()
    stream.learn()
    (model,) = stream.desk.all(Model, id=stream.model)
    stream.desk.change(Model, stream.model, production_follows=False)
    stream.desk.change(Alias, (model.id, "production"), version=1)
    counted = stream.learn()
    images = stream.images(1, 1, 3)
    assert counted["forgotten"]["against"] == 1 and counted["forgotten"]["images"] == IMAGES
    assert counted["forgotten"]["negative"] == sum(
        old == truth != best for truth, old, best, _ in images
    )


def test_answers_without_rankings_are_not_measured_in_words(stream: Stream) -> None:
    stream.learn(ranked=False)
    counted = stream.learn()  # beside a version from before, whose answers alone are read
    assert counted["forgotten"]["missing"] is None
    counted = stream.learn(ranked=False)
    assert "best old class" in counted["forgotten"]["missing"]
    assert all(check["passed"] for check in stream.version(3).gate["checks"])


def test_damaged_answers_are_not_compared_and_stop_nothing(stream: Stream) -> None:
    stream.learn()
    stream.learn()
    for cell in stream.desk.all(VersionTaskResult, model_id=stream.model):
        if cell.answers is not None:
            stream.desk.store.delete(Blobs.make_blob_key(cell.answers))
    counted = stream.learn()  # production is the parent, whose answers the job has
    assert counted["forgotten"]["images"] == 2 * IMAGES
    assert {one["against"] for one in counted["drifted"]["tasks"]} <= {2}
    assert stream.version(3).status == "published"


def test_images_that_were_deleted_are_not_compared(stream: Stream) -> None:
    stream.learn()
    stream.desk.change(
        Task, stream.desk.all(Task, model_id=stream.model)[0].id, data_deleted_at=1.0
    )
    counted = stream.learn()
    assert (
        counted["forgotten"]["missing"]
        == "no earlier task has held-out images that both versions answer"
    )


def test_a_model_from_before_the_checks_counts_nothing(desk: Desk) -> None:
    stream = Stream(desk, gate={"max_forgetting": 0.5})
    with pytest.raises(ValueError, match="not enough values"):
        stream.learn()
    assert [check["name"] for check in stream.version(1).gate["checks"]] == [
        "max_forgetting",
        "lost_tasks",
        "parent_rolled_back",
    ]
