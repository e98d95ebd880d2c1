"""Notices about the image size of a new model, which cannot be changed later."""

from core import imagenet_base, packaged_base
from core.protocol.answers.model_change import AskedImage
from core.protocol.base import ModelBase
from core.recipe.images import Images

MIN_SIZE, MAX_SIZE = 8, 1024
_FOR_PHOTOS = (
    f'take the base that was learned on photos of 224 × 224: "base": "{imagenet_base.NAME}"'
)


def size_warning(asked: AskedImage, images: Images, base: ModelBase) -> list[str]:
    """Return notices about the image size.

    At creation nothing is learned yet that another size would discard.
    """
    size = images.image["size"]
    if base == packaged_base.PACKAGED and size != (
        base_size := packaged_base.load_description().size
    ):
        return [
            f"{base} was learned on images of {base_size} × {base_size} pixels; of {size} × {size} "
            f"its features tell "
            f'classes apart less well. Send "image": {{"size": {base_size}}}, or {_FOR_PHOTOS}.'
        ]
    if asked.get("size") is not None or images.normalise is not None:
        return []
    more = (
        _FOR_PHOTOS
        if base == packaged_base.PACKAGED
        else f'create the model with "image": {{"size": 64}}, or another size from {MIN_SIZE} to '
        f"{MAX_SIZE}"
    )
    return [
        f"Images are resized to {size} × {size} pixels where nothing else is said, and this cannot "
        f"be changed later. Where more pixels matter, {more}."
    ]
