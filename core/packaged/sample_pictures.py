"""Pictures in the package, with which the service can be tried: four batches of three classes.

`core/packaged/pictures/` has one zip archive for each batch and the licence. The program
`tools/sample_pictures` has drawn them: no photo and no work of others is among them.
"""

from pathlib import Path

from core.packaged.packaged_base import PACKAGED

FOLDER = Path(__file__).parent / "pictures"
MODEL = "tabletop"
"""Name of the model that learns them."""
BASE = PACKAGED
"""Base of that model: the small one learns a batch in seconds."""
SIZE = 48
"""Pixels a side at which it reads the pictures, which have 128."""
BATCHES = {
    "week-1": ("apple", "book", "mug"),
    "week-2": ("bottle", "doughnut", "pear"),
    "week-3": ("bowl", "carrot", "die"),
    "week-4": ("egg", "mushroom", "orange"),
}
"""Name of a batch → its classes, in the order in which they are learned."""
OF_CLASS = 45
"""Pictures of each class; a third of them is held out to measure."""


def locate_packaged_sample_archive(name: str) -> Path:
    """Return the packaged zip of a sample batch: `train/<class>/…` and `test/<class>/…`."""
    return FOLDER / f"{name}.zip"
