"""Answers of the version that a job starts from to new classes, as the report of the batch has
them.
"""

import pytest
import torch

from core.learning.data.dataset import Dataset
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.precision import InputNormaliser
from core.learning.reports.data_findings import build_data_findings
from core.learning.reports.parent_predictions import (
    ParentPredictor,
    find_most_predicted_class_of_new_classes,
)

KNOWN = ("cap", "shoe")


def build_parent(temperature: float = 1.0, sure_from: float | None = None) -> ParentPredictor:
    """Build a version that classifies an image by its brightness: bright is cap, dark is shoe, and
    logits grow with brightness.
    """
    network = build_network(
        {"name": "mlp", "hidden": [2]}, ImageSpec(2, 1), "class", HeadSpec(KNOWN), seed=1
    )

    def predict_by_brightness(network: object, x: torch.Tensor, task: int | None) -> torch.Tensor:
        return torch.stack([x.mean((1, 2, 3)), -x.mean((1, 2, 3))], 1)

    return ParentPredictor(
        network,
        predict_by_brightness,
        InputNormaliser(None, 1, torch.device("cpu")),
        temperature,
        4,
        sure_from,
    )


def build_batch() -> Dataset:
    """Build a batch of 20 hats, of which 15 are bright, 3 grey and 2 dark, 5 dark gloves and 5
    caps.
    """
    values = [255] * 15 + [130] * 3 + [0] * 2 + [0] * 5 + [255] * 5
    images = (
        torch.tensor(values, dtype=torch.uint8)[:, None, None, None]
        .expand(-1, 2, 2, 1)
        .contiguous()
    )
    labels = torch.tensor([0] * 20 + [1] * 5 + [2] * 5)
    return Dataset(images, labels, ["hat", "glove", "cap"])


def test_new_classes_are_counted_by_what_they_would_have_been_called() -> None:
    least = {"least": 0.9, "version": 4}
    assert find_most_predicted_class_of_new_classes(build_parent(), build_batch()) == [
        {"label": "glove", "said": "shoe", "images": 5, "surely": 5, "of": 5, **least},
        {"label": "hat", "said": "cap", "images": 18, "surely": 15, "of": 20, **least},
    ]


@pytest.mark.parametrize(
    ("temperature", "sure_from", "surely"),
    [(1.0, 0.5, [5, 18]), (1.0, 0.99, [0, 0]), (9.0, None, [0, 0])],
)
def test_sure_is_what_the_model_says_at_the_temperature_of_the_version(
    temperature, sure_from, surely
) -> None:
    found = find_most_predicted_class_of_new_classes(
        build_parent(temperature, sure_from), build_batch()
    )
    assert sorted(one["surely"] for one in found) == surely


def test_without_new_classes_there_is_nothing_to_say() -> None:
    data = build_batch()
    assert (
        find_most_predicted_class_of_new_classes(
            build_parent(), Dataset(data.images, data.labels.clamp(max=0), ["cap"])
        )
        == []
    )


def test_a_person_reads_it() -> None:
    (told,) = build_data_findings(
        {"would_say": find_most_predicted_class_of_new_classes(build_parent(), build_batch())},
        30,
        0,
    )
    assert (told["kind"], told["holds"]) == ("would_say", False)
    assert told["text"] == (
        "Version 4, which does not know these classes yet, takes 5 of 5 images of “glove” for “shoe”, "
        "15 of 20 images of “hat” for “cap”, with a probability of at least 0.9. That is as it should "
        "be, unless two names mean the same thing."
    )
    few = {
        "label": "hat",
        "said": "cap",
        "images": 9,
        "surely": 4,
        "of": 100,
        "least": 0.9,
        "version": 4,
    }
    assert build_data_findings({"would_say": [few]}, 100, 0) == []  # type: ignore[list-item]


def test_the_report_of_a_job_has_it(bench) -> None:
    first = bench.learn_task(1, method="finetune", epochs=20)
    second = bench.learn_task(2, first, method="finetune", data_report="warn")
    (report,) = [e["report"] for e in second.events if e["event"] == "data"]
    assert {one["label"] for one in report["would_say"]} == {"cat", "dog"}
    for one in report["would_say"]:
        assert one["said"] in ("ant", "bee") and one["of"] == bench.n // 2 and one["version"] == 1
    (alone,) = [
        e["report"] for e in bench.learn_task(1, data_report="warn").events if e["event"] == "data"
    ]
    assert alone["would_say"] == []
