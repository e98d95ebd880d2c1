"""Known classes of a batch whose labels contradict what the parent version has learned."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from core.learning.data.dataset import Dataset
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.precision import InputNormaliser
from core.learning.reports.data_findings import build_data_findings
from core.learning.reports.mislabelled import MislabelledClasses, find_mislabelled_classes
from core.learning.reports.parent_predictions import ParentPredictor

KNOWN = ["cap", "shoe", "bag", "sock"]
BRIGHTNESS = [0, 85, 170, 255]
"""Brightness of an image that the parent predicts as each class."""


@pytest.fixture(scope="module")
def parent() -> ParentPredictor:
    """Version 7, which reads the class in the brightness of an image."""
    network = build_network(
        {"name": "mlp", "hidden": [2]}, ImageSpec(2, 1), "class", HeadSpec(tuple(KNOWN)), seed=1
    )

    def predict_by_brightness(network: object, x: Tensor, task: int | None) -> Tensor:
        brightness = 0.75 * (x.mean((1, 2, 3)) + 2)  # inputs are in [-2, 2]
        return -((brightness[:, None] - torch.arange(4.0)) ** 2)

    return ParentPredictor(
        network, predict_by_brightness, InputNormaliser(None, 1, torch.device("cpu")), 1.0, 7, None
    )


def make_part(*groups: tuple[str, str, int]) -> Dataset:
    """Make a part from (label, class that the images show, number of images)."""
    names = sorted({label for label, _, _ in groups})
    values = [BRIGHTNESS[KNOWN.index(shown)] for _, shown, count in groups for _ in range(count)]
    labels = [names.index(label) for label, _, count in groups for _ in range(count)]
    images = (
        torch.tensor(values, dtype=torch.uint8)[:, None, None, None]
        .expand(-1, 2, 2, 1)
        .contiguous()
    )
    return Dataset(images, torch.tensor(labels), names)


EARLIER = make_part(*[(name, name, 10) for name in KNOWN])


def find_mislabelled(
    parent: ParentPredictor, batch: Dataset, earlier: Sequence[Dataset] = (EARLIER,)
) -> MislabelledClasses:
    parts = [(part, torch.arange(len(part))) for part in earlier]
    return find_mislabelled_classes(parent, batch, torch.arange(len(batch)), lambda: parts)


ROTATED = [(KNOWN[(n + 1) % 4], name, 12) for n, name in enumerate(KNOWN)]
SWAPPED = [("cap", "shoe", 20), ("shoe", "cap", 16), ("shoe", "shoe", 4), ("bag", "bag", 20)]


SCATTERED = [("sock", name, 5) for name in KNOWN]


@pytest.mark.parametrize(
    ("groups", "counts"),
    [
        (SWAPPED, [("cap", "shoe", 20, 20), ("shoe", "cap", 16, 20)]),
        (ROTATED, [(label, shown, 12, 12) for label, shown, _ in sorted(ROTATED)]),
        ([("cap", "shoe", 6), ("cap", "cap", 5)], [("cap", "shoe", 6, 11)]),
    ],
    ids=["swapped", "rotated", "half of a class"],
)
def test_labels_that_contradict_earlier_tasks_are_doubted(
    parent: ParentPredictor, groups: Any, counts: Any
) -> None:
    found = find_mislabelled(parent, make_part(*groups))
    assert [
        (one["label"], one["said"], one["images"], one["of"]) for one in found.classes
    ] == counts
    assert {(one["right"], one["held_out"], one["version"]) for one in found.classes} == {
        (10, 10, 7)
    }


@pytest.mark.parametrize(
    ("groups", "earlier"),
    [
        ([(name, name, 20) for name in KNOWN], [EARLIER]),
        ([("cap", "shoe", 20)], [make_part(("cap", "cap", 6), ("cap", "shoe", 4))]),
        ([(name, "cap", 20) for name in KNOWN], [EARLIER]),
        (
            [("cap", "shoe", 12), *[("cap", name, 4) for name in ("bag", "sock")], *SCATTERED],
            [EARLIER],
        ),
        ([("cap", "shoe", 4)], [EARLIER]),
        ([("cap", "shoe", 9), ("cap", "cap", 11)], [EARLIER]),
        ([("hat", "shoe", 20)], [EARLIER]),
        ([("cap", "shoe", 40), ("shoe", "shoe", 10)], [EARLIER]),
        ([("cap", "shoe", 20)], []),
        ([("cap", "shoe", 20)], [make_part(("cap", "cap", 4))]),
    ],
    ids=[
        "right labels",
        "a weak version",
        "one prediction for all",
        "scattered predictions",
        "few images",
        "under half",
        "a new class",
        "two classes that look alike",
        "no earlier task",
        "few earlier images",
    ],
)
def test_nothing_is_doubted_without_evidence(
    parent: ParentPredictor, groups: Any, earlier: Any
) -> None:
    assert find_mislabelled(parent, make_part(*groups), earlier).classes == []


def test_doubted_images_come_with_the_predicted_class_and_its_odds(parent: ParentPredictor) -> None:
    found = find_mislabelled(parent, make_part(*SWAPPED))
    assert found.rows.tolist() == list(range(36))
    assert found.suggested == ["shoe"] * 20 + ["cap"] * 16
    assert found.scores.tolist() == pytest.approx([torch.e] * 36, rel=1e-4)


def test_a_sentence_names_both_classes_and_asks(parent: ParentPredictor) -> None:
    (told,) = build_data_findings(
        {"mislabelled": find_mislabelled(parent, make_part(*SWAPPED)).classes}, 60, 0
    )
    assert (told["kind"], told["holds"]) == ("suspects", True)
    assert told["text"].startswith(
        "Version 7 predicts shoe for 20 of 20 images labelled cap, cap for 16 of 20 images "
        "labelled shoe, though of 20 held-out images of these classes in earlier tasks it gets 20 "
        "right: are the labels swapped or wrong?"
    )


def test_an_accepted_finding_holds_nothing(parent: ParentPredictor) -> None:
    classes = find_mislabelled(parent, make_part(*SWAPPED)).classes
    (told,) = build_data_findings({"mislabelled": classes}, 60, 0, ["suspects"])
    assert not told["holds"]
