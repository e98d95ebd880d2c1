"""Small models and batches, which take a second."""

import io
import zipfile
from typing import Any

from perennial import NotFound, Perennial

TRAIN, TEST = 24, 8
"""Images of a class in a batch."""
QUICK = {"method": "finetune", "epochs": 1, "seed": 0}
"""A recipe that takes a second."""
SMALL: dict[str, Any] = {
    "architecture": "small-cnn",
    "image": {"size": 8, "channels": 1},
    "base": "random",
    "recipe": QUICK,
    "gate": {"checks": "off"},
}


def create_taught_model(client: Perennial, name: str, batch: bytes) -> str:
    """Create a model with one version, unless an earlier test has, and return its name."""
    try:
        client.models.retrieve(name)
    except NotFound:
        client.models.create(name, **SMALL)
        client.submit(name, batch, name="week-31").wait(120)
    return name


def reduce_batch(archive: bytes, test: int = TEST, train: int = TRAIN) -> bytes:
    """Return the same batch with fewer images of each class: `train` to learn from and `test` to
    measure.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w") as to:
        for label in sorted({name.split("/")[0] for name in source.namelist()}):
            own = [name for name in source.namelist() if name.startswith(f"{label}/")]
            for place, name in enumerate(own[: train + test]):
                part = "train" if place < train else "test"
                to.writestr(
                    zipfile.ZipInfo(f"{part}/{name}", (2000, 1, 1, 0, 0, 0)), source.read(name)
                )
    return out.getvalue()
