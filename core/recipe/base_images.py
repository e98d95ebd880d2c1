"""The images that uploaded weights were learned on: what `?config=` and `?preset=` of `POST /v1/bases` say."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import Invalid
from core.protocol.answers.architecture import ImageOut, Interpolation, NormalisationOut
from core.recipe.images import Images

Preset = Literal["imagenet"]
IMAGENET: NormalisationOut = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
"""Of ImageNet's training images, as torchvision's weights expect them."""
Mean = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]


class BaseConfig(BaseModel):
    """mean, std: of each channel's values in [0, 1]; size: pixels a side; crop: see `ImageOut`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: list[Mean] | None = Field(None, min_length=1, max_length=3)
    std: list[Deviation] | None = Field(None, min_length=1, max_length=3)
    size: int | None = Field(None, ge=8, le=1024)
    crop: float | None = Field(None, gt=0.1, le=1, allow_inf_nan=False)
    interpolation: Interpolation | None = None


def config_of(config: str | None, preset: Preset | None) -> BaseConfig:
    """What the request says of the images; neither: nothing.

    Raises:
        Invalid: both are given, or `config` is not such a JSON object.
    """
    if config is not None and preset is not None:
        raise _invalid("Say config or preset, not both.", "not beside preset")
    if preset is not None:
        return BaseConfig.model_validate(IMAGENET)
    try:
        return BaseConfig() if config is None else BaseConfig.model_validate(json.loads(config))
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, ("config", *first["loc"])))
        raise _invalid(
            f"{at}: {first['msg']}. Known: {', '.join(BaseConfig.model_fields)}.", first["msg"], at
        ) from None
    except (ValueError, RecursionError):
        raise _invalid("config is not JSON.", "not JSON") from None


def images_of_base(images: Images, config: BaseConfig) -> Images:
    """The images of the architecture with what is said of the base in the place of the usual.

    Raises:
        Invalid: mean and std do not have a number for each channel.
    """
    image: ImageOut = {**images.image}
    if config.crop is not None:
        image["crop"] = config.crop
    if config.interpolation is not None:
        image["interpolation"] = config.interpolation
    if config.mean is None and config.std is None:
        return Images(image, images.normalise)
    mean, std, channels = config.mean or [], config.std or [], image["channels"]
    if not len(mean) == len(std) == channels:
        what = f"mean and std need {channels} numbers each, one for each channel"
        raise _invalid(f"{what}; there are {len(mean)} and {len(std)}.", what)
    return Images(image, {"mean": mean, "std": std})


def _invalid(detail: str, message: str, field: str = "config") -> Invalid:
    return Invalid(detail, fields=[{"field": field, "message": message}])
