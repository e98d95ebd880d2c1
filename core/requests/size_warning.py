"""What a new model is told of the size of its images, which cannot be changed later."""

from core import packaged_base
from core.protocol.answers.model_change import AskedImage
from core.protocol.base import ModelBase
from core.recipe.images import Images

MIN_SIZE, MAX_SIZE = 8, 1024


def size_warning(asked: AskedImage, images: Images, base: ModelBase) -> list[str]:
    """Said at creation, where nothing is learned yet that another size would throw away."""
    size = images.image["size"]
    if base == packaged_base.PACKAGED and size != (known := packaged_base.packaged().size):
        return [
            f"{base} was learned on images of {known} × {known} pixels; of {size} × {size} its features tell "
            f'classes apart less well. Send "image": {{"size": {known}}}, or take a base that was learned on '
            'larger images: "architecture": "timm/mobilenetv3_small_100".'
        ]
    if asked.get("size") is not None or images.normalise is not None:
        return []
    more = (
        'take a base that was learned on more: "architecture": "timm/mobilenetv3_small_100"'
        if base == packaged_base.PACKAGED
        else f'create the model with "image": {{"size": 64}}, or another size from {MIN_SIZE} to {MAX_SIZE}'
    )
    return [
        f"Images are resized to {size} × {size} pixels, the default, and this cannot be changed later. Where "
        f"more pixels matter, {more}."
    ]
