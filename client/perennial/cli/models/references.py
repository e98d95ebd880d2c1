"""References of an adopted classifier: a few images of its classes.

A closed form on the classifier's own features starts from them, as a model of its own, and both are
measured on the same held-out images.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perennial.errors import ConfigError
from perennial.pack.names import is_image_path
from perennial.shapes import convert_to_json

if TYPE_CHECKING:
    from perennial import Perennial

LEAST = 5
"""Least number of references of each class."""
_HELD_OUT_EVERY = 4
"""One of so many references is held out, of each class at least one."""


@dataclass(frozen=True)
class HeldOutAndFullReferenceBatches:
    """Batches made from a user's reference images: held-out ones alone, and all of them.

    Attributes:
        images: number of images.
        measuring: held-out images alone, for the classifier itself.
        learning: the others too, for the closed form.
    """

    images: int
    measuring: bytes
    learning: bytes


@dataclass(frozen=True)
class ClassifierAndClosedFormAccuracies:
    """Accuracies of an adopted classifier and of a closed-form model on the same held-out images.

    Attributes:
        model: the adopted classifier.
        closed_form: the model that starts from the references.
        classifier_accuracy, closed_form_accuracy: in [0, 1].
        advised: the model to go on with.
    """

    model: str
    closed_form: str
    classifier_accuracy: float | None
    closed_form_accuracy: float | None
    advised: str

    def to_dict(self) -> dict[str, str | float | None]:
        """Return the comparison's fields as JSON."""
        return dict(vars(self))


def pack_reference_images_into_batches(
    folder: Path, classes: Sequence[str]
) -> HeldOutAndFullReferenceBatches:
    """Read reference images from one folder per class into batches.

    Raises:
        ConfigError: a folder is not named after a class, or a class has too few images.
    """
    by_class = {
        path.name: sorted(file for file in path.iterdir() if is_image_path(file.name))
        for path in sorted(folder.iterdir())
        if path.is_dir()
    }
    unknown = sorted(by_class.keys() - set(classes))
    if unknown:
        raise ConfigError(
            f"{folder / unknown[0]} is not named after a class of the classifier. Rename it."
        )
    few = [name for name in classes if len(by_class.get(name, [])) < LEAST]
    if few:
        raise ConfigError(
            f"{folder} has {len(by_class.get(few[0], []))} images of {few[0]}, and a closed form "
            f"needs {LEAST} of each class or more. Add images, or adopt without --reference."
        )
    held_out: dict[str, Path] = {}
    training: dict[str, Path] = {}
    for name, files in by_class.items():
        for number, file in enumerate(files):
            # The first image of each class is held out, so that every class is measured.
            part = held_out if number % _HELD_OUT_EVERY == 0 else training
            part[f"{name}/{number:06}{file.suffix}"] = file
    return HeldOutAndFullReferenceBatches(
        len(held_out) + len(training),
        _zip_files({f"test/{name}": file for name, file in held_out.items()}),
        _zip_files(
            {f"train/{name}": file for name, file in training.items()}
            | {f"test/{name}": file for name, file in held_out.items()}
        ),
    )


def train_and_compare_closed_form_model(
    client: Perennial, model: str, references: HeldOutAndFullReferenceBatches
) -> ClassifierAndClosedFormAccuracies:
    """Create a closed-form model on the classifier's features, and compare both on held-out images.

    Raises:
        Conflict: the name of the second model is taken.
        JobEnded: a job did not end as it should.
    """
    other = f"{model}-references"
    measured = client.submit(model, references.measuring)
    adopted = client.models.retrieve(model)
    client.models.create(
        other,
        architecture=convert_to_json(adopted.architecture),
        image={"size": adopted.image.size, "channels": adopted.image.channels},
        base={"model": model, "version": 1},
        recipe={"method": "analytic"},
    )
    learned = client.submit(other, references.learning)
    measured.wait()
    learned.wait()
    classifier, closed_form = (
        client.metrics.retrieve(name).accuracy_matrix[-1][0] for name in (model, other)
    )
    # Of equals the classifier itself: it is in production already.
    is_better = (closed_form or 0.0) > (classifier or 0.0)
    return ClassifierAndClosedFormAccuracies(
        model, other, classifier, closed_form, other if is_better else model
    )


def _zip_files(files: dict[str, Path]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, path in files.items():
            archive.write(path, name)
    return packed.getvalue()
