"""The note for a batch of small images in a model whose base reads larger ones."""

from core import imagenet_base, packaged_base
from core.ingest.decoder import SMALL_SIDE
from core.ingest.ingest import Ingested
from core.protocol.base import ModelBase
from core.recipe.passes import pass_of

_SHARE = 0.5
"""Share of small images above which a batch counts as one of small images."""


def advise_small_base(base: ModelBase, size: int, made: Ingested) -> list[str]:
    """Suggest the small base, and name the seconds it saves, if most images of a batch are
    small.
    """
    images, small = made.n_train + made.n_held_out, made.report.get("small", 0)
    if base != imagenet_base.NAME or small <= _SHARE * images:
        return []
    small_size = packaged_base.load_description().size
    saved = pass_of(base, size).forward_s - pass_of(packaged_base.PACKAGED, small_size).forward_s
    return [
        f"{small:,} of {images:,} images have fewer than {SMALL_SIDE} pixels on their longer side, "
        f"and are enlarged to "
        f'{size}. A model with "base": "{packaged_base.PACKAGED}" reads them at {small_size} '
        f"pixels, and saves about "
        f"{saved * images:,.0f} s of one core in each pass over this batch"
    ]
