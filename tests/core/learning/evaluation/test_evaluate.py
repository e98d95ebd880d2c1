"""Predictions of many tasks at once: each image has the prediction that it has alone."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.learning.evaluation import evaluate
from core.learning.evaluation.calibration.held_out import HeldOutLogits
from core.learning.problems.class_predictions import ClassPredictions, make_class_predictions


@pytest.mark.parametrize("most_numbers", [1, 40, 1 << 20])
@given(sizes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([3, 3, 3, 300])), max_size=6))
def test_tasks_decoded_together_have_the_predictions_of_each_alone(
    most_numbers: int, sizes: list[tuple[int, int]]
) -> None:
    generator = torch.Generator().manual_seed(len(sizes))
    logits = {
        task: HeldOutLogits(
            # Rounded, so that some scores are equal.
            torch.randn(images, classes, generator=generator).round(decimals=1),
            torch.randint(0, classes, (images,), generator=generator),
        )
        for task, (images, classes) in enumerate(sizes, start=1)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "DECODED_NUMBERS", most_numbers)
        together = evaluate.make_class_predictions_of_tasks(logits, 1.7)
    assert list(together) == list(logits)
    for task, part in logits.items():
        alone = make_class_predictions(part.values, part.targets, 1.7)
        for field in fields(ClassPredictions):
            expected, predicted = getattr(alone, field.name), getattr(together[task], field.name)
            assert expected.dtype == predicted.dtype and torch.equal(expected, predicted)
