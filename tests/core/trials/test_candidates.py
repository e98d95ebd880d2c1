"""Suggested trials: each can be learned with what the model's settings keep."""

from typing import Any

import pytest

from core.trials.candidates import list_trial_suggestions
from tests.core.rows import make_model_row

KEEP_IMAGES = {"er-ace", "icarl"}


def list_suggested_methods(**settings: Any) -> list[str]:
    model = make_model_row("mdl_1", "own_1", **settings)
    suggestions = list_trial_suggestions(model, is_first=False, images=1000)
    patches: list[Any] = [each.patch for each in suggestions]
    return [patch["method"]["name"] for patch in patches]


@pytest.mark.parametrize(
    ("settings", "keeps_images"),
    [
        ({"keep_training_data": True}, True),
        ({"keep_training_data": False, "training_data_days": 7}, True),
        ({"keep_training_data": False, "training_data_days": 0}, False),
        ({"keep_training_data": True, "held_out": "counts"}, False),
    ],
)
def test_methods_that_keep_images_are_suggested_only_to_models_that_may(
    settings: dict[str, Any], keeps_images: bool
) -> None:
    methods = list_suggested_methods(**settings)
    assert bool(KEEP_IMAGES & set(methods)) == keeps_images
    assert "slca" in methods
