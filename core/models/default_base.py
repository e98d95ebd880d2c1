"""The start of a model whose request leaves the base open, and sentences about that choice."""

from dataclasses import dataclass, field

from core.admission.admission import AdmissionLimits
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.model_change import NewModel
from core.contract.responses.recipe import RecipeOut
from core.errors import JobTooLarge
from core.packaged import imagenet_base, packaged_base
from core.recipe import photo_base
from core.recipe.duration_estimate import (
    BASE_SIZE,
    estimate_recipe_processor_seconds,
    format_minutes,
)
from core.recipe.images import resolve_image_settings

EXAMPLE_IMAGES = 100
"""Number of images in the example batch whose duration the response to a creation states."""


@dataclass(frozen=True)
class ReplacementOfDefaultBase:
    """Base weights that replace the default for a new model, with sentences about the choice.

    `base` is None for the default, the packaged base.
    """

    base: str | None = None
    notes: list[str] = field(default_factory=list)


def choose_larger_base_for_photos(
    catalogue: RecipeCatalogue, model_request: NewModel, admission: AdmissionLimits
) -> ReplacementOfDefaultBase:
    """Choose the larger base for photos for a new model that names none, where that is possible."""
    if (
        not photo_base.is_base_choice_left_open(model_request)
        or (recipe := photo_base.find_default_recipe_on_imagenet_base(catalogue, model_request))
        is None
    ):
        return ReplacementOfDefaultBase()
    problem = imagenet_base.explain_missing_imagenet_base() or _explain_job_refusal_on_larger_base(
        catalogue, recipe, admission
    )
    # Training the larger network takes much longer, so that is left to an explicit request.
    if photo_base.trains_backbone(recipe):
        return ReplacementOfDefaultBase(
            None, [] if problem else [_explain_choice_of_small_base(catalogue, recipe)]
        )
    if not problem:
        return ReplacementOfDefaultBase(imagenet_base.NAME)
    return ReplacementOfDefaultBase(
        None,
        [
            f"The model does not start from {imagenet_base.NAME}, which knows photos: {problem}. "
            f"It starts from {packaged_base.PACKAGED}, which was learned on images of "
            f"{packaged_base.load_packaged_base_description().size} pixels and "
            "tells photos apart less well. To have the other, repair this and create the model "
            "again."
        ],
    )


def _explain_job_refusal_on_larger_base(
    catalogue: RecipeCatalogue, recipe: RecipeOut, admission: AdmissionLimits
) -> str:
    """Return why a job on this base would be refused here, or "" if it would be accepted."""
    image = resolve_image_settings(catalogue, imagenet_base.ARCHITECTURE, {}).image
    try:
        admission.check_job_memory(catalogue, imagenet_base.ARCHITECTURE, image, recipe)
    except JobTooLarge as error:
        return error.detail.rstrip(".")
    return ""


def _explain_choice_of_small_base(catalogue: RecipeCatalogue, recipe: RecipeOut) -> str:
    """Return a sentence with the expected minutes that a batch takes on the larger base."""
    expected = estimate_recipe_processor_seconds(
        catalogue, imagenet_base.NAME, BASE_SIZE, recipe, EXAMPLE_IMAGES
    )
    return (
        f"This recipe trains the network, so the model starts from the small base "
        f"{packaged_base.PACKAGED}. "
        f'{imagenet_base.NAME} knows photos better ("base": "{imagenet_base.NAME}"); a batch of '
        f"{EXAMPLE_IMAGES} "
        f"images then takes about {format_minutes(expected)} of one processor core by this recipe."
    )
