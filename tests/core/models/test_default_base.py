"""The base of a model whose request leaves it open: the one for photos, where its recipe and the
machine allow that.
"""

from typing import Any

import pytest

from core.admission.admission import ANY, AdmissionLimits
from core.models.default_base import choose_larger_base_for_photos
from core.models.requested_model import CheckedModelRequest, check_and_complete_model_request
from core.packaged import imagenet_base, packaged_base
from core.recipe.duration_estimate import estimate_recipe_processor_seconds
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
PHOTOS, SMALL = imagenet_base.NAME, packaged_base.PACKAGED
FEW_PARAMETERS = AdmissionLimits(max_parameters=2_000_000)
ADAPTING = {"name": "analytic", "adapt": {"epochs": 2, "depth": 5}}


def check_request(
    admission: AdmissionLimits = ANY, *, photos: bool = True, **fields: Any
) -> CheckedModelRequest:
    return check_and_complete_model_request(
        CATALOGUE, {"name": "birds", "scenario": "class", **fields}, admission, photos
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scenario": "data"},
        {"image": {"channels": 3}},
        {"recipe": {"method": "analytic"}},
        {"recipe": {"method": "finetune", "depth": 1}},
        {"recipe": {"preset": "linear-probe"}},
    ],
)
def test_what_leaves_the_network_as_it_is_starts_from_the_base_for_photos(
    fields: dict[str, Any],
) -> None:
    asked = check_request(**fields)
    assert (asked.base, asked.architecture) == (PHOTOS, imagenet_base.ARCHITECTURE)
    assert (asked.images.image["size"], asked.notes) == (224, [])


@pytest.mark.parametrize(
    ("fields", "base"),
    [
        ({"image": {"size": 32}}, SMALL),
        ({"image": {"channels": 1}}, SMALL),
        ({"base": SMALL}, SMALL),
        ({"base": "random"}, "random"),
        ({"architecture": "small-cnn"}, "random"),
        ({"recipe": {"method": "er"}}, SMALL),
        ({"recipe": {"method": ADAPTING}}, SMALL),
        ({"recipe": {"method": "dlcft"}}, SMALL),
    ],
)
def test_everything_else_starts_where_it_did(fields: dict[str, Any], base: str) -> None:
    assert check_request(**fields).base == base


def test_a_service_that_has_another_default_starts_models_there() -> None:
    assert check_request(photos=False).base == SMALL


def test_without_the_package_the_model_starts_from_the_small_base_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        imagenet_base, "explain_missing_imagenet_base", lambda: "the package is not installed"
    )
    asked = check_request()
    assert (asked.base, asked.images.image["size"]) == (SMALL, 32)
    assert "knows photos: the package is not installed. It starts from" in asked.notes[0]


def test_a_machine_that_cannot_hold_it_starts_from_the_small_base_and_says_so() -> None:
    asked = check_request(FEW_PARAMETERS)
    assert asked.base == SMALL
    assert "PERENNIAL_MAX_PARAMETERS" in asked.notes[0]


def test_a_recipe_that_trains_the_network_is_answered_with_the_minutes_of_the_larger_base() -> None:
    (note,) = check_request(recipe={"method": "finetune", "epochs": 10}).notes
    assert PHOTOS in note and "100 images then takes about 2 minutes" in note


@pytest.mark.parametrize("admission", [FEW_PARAMETERS, ANY])
def test_a_base_that_cannot_be_had_is_not_offered(
    admission: AdmissionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    if admission is ANY:
        monkeypatch.setattr(
            imagenet_base, "explain_missing_imagenet_base", lambda: "the package is not installed"
        )
    given: Any = {"name": "birds", "scenario": "class", "recipe": {"method": "er"}}
    assert choose_larger_base_for_photos(CATALOGUE, given, admission).notes == []


@pytest.mark.parametrize(
    ("recipe", "seconds"),
    [
        ({"method": "analytic"}, 100 * 0.041),
        ({"method": ADAPTING}, 100 * (0.041 + 2 * 0.112)),
        ({"method": "finetune", "epochs": 3}, 100 * 3 * 0.112),
        ({"method": "finetune", "epochs": 3, "depth": 1}, 100 * 3 * 0.041),
        ({"method": "er", "epochs": 3}, 100 * 3 * 2 * 0.112),
    ],
)
def test_passes_are_counted_by_method(recipe: dict[str, Any], seconds: float) -> None:
    resolved = check_request(base=PHOTOS, recipe=recipe).resolved_recipe.recipe
    assert estimate_recipe_processor_seconds(
        CATALOGUE, PHOTOS, 224, resolved, 100
    ) == pytest.approx(seconds)


def test_other_sizes_count_by_their_area() -> None:
    recipe = check_request(base=PHOTOS).resolved_recipe.recipe
    assert estimate_recipe_processor_seconds(CATALOGUE, PHOTOS, 448, recipe, 1) == pytest.approx(
        4 * 0.041
    )
    assert estimate_recipe_processor_seconds(CATALOGUE, PHOTOS, 96, recipe, 1) == pytest.approx(
        (96 / 128) ** 2 * 0.0078
    )
