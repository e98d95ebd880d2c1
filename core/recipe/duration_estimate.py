"""Estimate of the seconds that learning a batch takes, made before a job exists.

A pass over images was measured on one core of an AMD EPYC for each base that can be named. The
durations of a model's own earlier jobs take precedence, where there are any
(`core/tasks/expected_duration.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.catalogue import MethodEntry
from core.contract.responses.recipe import RecipeOut
from core.packaged import imagenet_base, packaged_base
from core.recipe.photo_base import trains_backbone

BASE_SIZE = 224
"""Pixels a side of the images that the base for photos was trained on."""


@dataclass(frozen=True)
class ProcessorSecondsPerImage:
    """Processor seconds for one image: a prediction, and one training step.

    Attributes:
        size: pixels a side.
        forward_s: seconds for a prediction.
        training_s: seconds for a forward and backward pass with its update.
    """

    size: int
    forward_s: float
    training_s: float


PASSES: Mapping[str, tuple[ProcessorSecondsPerImage, ...]] = {
    imagenet_base.NAME: (
        ProcessorSecondsPerImage(128, 0.0078, 0.032),
        ProcessorSecondsPerImage(BASE_SIZE, 0.041, 0.112),
    ),
    packaged_base.PACKAGED: (ProcessorSecondsPerImage(32, 0.0051, 0.012),),
}
"""Measured passes by base, from `python -m bench.service.passes`."""


def estimate_recipe_processor_seconds(
    catalogue: RecipeCatalogue,
    base: str,
    size: int,
    recipe: RecipeOut,
    images: int,
    held_out_images: int = 0,
) -> float:
    """Estimate the processor seconds that a recipe's passes over images take.

    Args:
        base: a name of `PASSES`.
        size: pixels a side; other sizes than the measured ones count by their area.
        recipe: complete.
        images: that are learned.
        held_out_images: that are held out, and only answered.
    """
    return compute_recipe_processor_seconds(
        catalogue, estimate_seconds_per_image_on_base(base, size), recipe, images, held_out_images
    )


def estimate_seconds_per_image_on_base(base: str, size: int) -> ProcessorSecondsPerImage:
    """Find the measured seconds per image on a base network, scaled to an image size."""
    # The nearest size, since the time does not grow exactly with the area.
    nearest = min(PASSES[base], key=lambda known: abs(known.size - size))
    area = (size / nearest.size) ** 2
    return ProcessorSecondsPerImage(size, area * nearest.forward_s, area * nearest.training_s)


def compute_recipe_processor_seconds(
    catalogue: RecipeCatalogue,
    base_pass: ProcessorSecondsPerImage,
    recipe: RecipeOut,
    images: int,
    held_out_images: int,
) -> float:
    """Compute a recipe's processor seconds, given the duration of one pass; see
    `estimate_recipe_processor_seconds`.
    """
    entry = catalogue["methods"][recipe["method"]["name"]]
    return (
        images * _compute_recipe_seconds_per_image(base_pass, entry, recipe)
        + held_out_images * base_pass.forward_s
    )


def _compute_recipe_seconds_per_image(
    base_pass: ProcessorSecondsPerImage, entry: MethodEntry, recipe: RecipeOut
) -> float:
    """Compute the processor seconds of all passes of a recipe over one image.

    Methods in closed form need a single pass.
    """
    method = recipe["method"]
    adapt = method.get("adapt")
    if method["name"] == "analytic":
        epochs = int(adapt["epochs"]) if isinstance(adapt, Mapping) else 0
        return base_pass.forward_s + epochs * base_pass.training_s
    step = base_pass.training_s if trains_backbone(recipe) else base_pass.forward_s
    footprint = entry.get("footprint")
    # Methods with replay learn more images in a step than those of the batch.
    drawn = 1.0 if footprint is None else max(1.0, footprint["batches"])
    return recipe["epochs"] * drawn * step


def format_minutes(seconds: float) -> str:
    """Format seconds as whole minutes in words."""
    minutes = max(1, round(seconds / 60))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
