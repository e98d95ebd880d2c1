"""Training images of uploaded weights: `?config=` and `?preset=` of `POST /v1/bases`."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.contract.responses.architecture import ImageOut, Interpolation, NormalisationOut
from core.errors import Invalid
from core.recipe.images import ImageFormatAndNormalisation

Preset = Literal["imagenet"]
IMAGENET: NormalisationOut = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
"""Statistics of ImageNet's training images, as torchvision's weights expect them."""
Mean = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]


class BaseImageSettings(BaseModel):
    """Description of the images that a model's base was trained on.

    Attributes:
        mean: mean of each channel's values in [0, 1].
        std: standard deviation of each channel's values, in (0, 10].
        size: pixels a side, 8 to 1024.
        crop: see `ImageOut`.
        interpolation: see `ImageOut`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: list[Mean] | None = Field(None, min_length=1, max_length=3)
    std: list[Deviation] | None = Field(None, min_length=1, max_length=3)
    size: int | None = Field(None, ge=8, le=1024)
    crop: float | None = Field(None, gt=0.1, le=1, allow_inf_nan=False)
    interpolation: Interpolation | None = None


def parse_base_image_config(config: str | None, preset: Preset | None) -> BaseImageSettings:
    """Parse a description of a base's training images; empty if neither argument is given.

    Raises:
        Invalid: both arguments are given, or `config` is not a JSON object of the form of
            `BaseImageSettings`.
    """
    if config is not None and preset is not None:
        raise _build_image_config_error("Say config or preset, not both.", "not beside preset")
    if preset is not None:
        return BaseImageSettings.model_validate(IMAGENET)
    try:
        return (
            BaseImageSettings()
            if config is None
            else BaseImageSettings.model_validate(json.loads(config))
        )
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, ("config", *first["loc"])))
        raise _build_image_config_error(
            f"{at}: {first['msg']}. Known: {', '.join(BaseImageSettings.model_fields)}.",
            first["msg"],
            at,
        ) from None
    # Deeply nested JSON exceeds Python's recursion limit, which is the client's error.
    except (ValueError, RecursionError):
        raise _build_image_config_error("config is not JSON.", "not JSON") from None


def override_image_settings_by_base(
    images: ImageFormatAndNormalisation, config: BaseImageSettings
) -> ImageFormatAndNormalisation:
    """Return a model's image settings: the architecture's, overridden by the description of the
    base.

    Raises:
        Invalid: mean and std do not have one number per channel.
    """
    image: ImageOut = {**images.image}
    if config.crop is not None:
        image["crop"] = config.crop
    if config.interpolation is not None:
        image["interpolation"] = config.interpolation
    # With only one of the two, the check below fails: the other's default would not fit it.
    if config.mean is None and config.std is None:
        return ImageFormatAndNormalisation(image, images.normalise)
    mean, std, channels = config.mean or [], config.std or [], image["channels"]
    if not len(mean) == len(std) == channels:
        requirement = f"mean and std need {channels} numbers each, one for each channel"
        raise _build_image_config_error(
            f"{requirement}; there are {len(mean)} and {len(std)}.", requirement
        )
    return ImageFormatAndNormalisation(image, {"mean": mean, "std": std})


def _build_image_config_error(detail: str, message: str, field: str = "config") -> Invalid:
    return Invalid(detail, fields=[{"field": field, "message": message}])
