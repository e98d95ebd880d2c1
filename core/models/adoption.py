"""Adoption of a classifier: an uploaded base with its head becomes version 1 of a new model.

The base is used up by that: its tensors become the parts of versions 0 (the backbone) and 1 (with
the head), and its row is deleted. Task 1 stands for what the classifier learned elsewhere. It has
classes and no images, until a batch with held-out images alone measures it.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.admission.applicability import (
    PLAIN,
    NextTaskStartingPoint,
    check_recipe_from_start_and_list_warnings,
)
from core.bases.base_advice import (
    explain_architecture_mismatch_of_base,
    get_base_architecture,
    have_same_image_size_and_channels,
)
from core.contract.architecture import Normalisation
from core.contract.base import (
    ADOPTED,
    ADOPTED_VERSION,
    UploadedBaseDescription,
    UploadedClassifierDescription,
)
from core.contract.catalogue import RecipeCatalogue
from core.contract.manifest import BaseOrigin, StoredVersionPart
from core.contract.responses.model_change import NewModel
from core.contract.responses.recipe import RecipeOut
from core.database.session import Database
from core.database.tables import Model, Task, UploadedBase
from core.errors import Invalid
from core.files.merging import MergedSafetensorsFile
from core.files.safetensors_header import read_safetensors_header
from core.ids import new_id
from core.lineage import version_zero
from core.lineage.lineage import LATEST, PRODUCTION, AliasMoveOrigin, point_alias_to_version
from core.lineage.standing import TaskStanding
from core.models.first_version import keep_image_decoding_of_model
from core.requests.actor import Actor, UseCaseTransaction
from core.requests.resources import UseCaseResources
from core.retention import references
from core.retention.unreferenced_blobs import delete_unreferenced_blobs
from core.storage import Blobs
from core.usage import stored_bytes

Rename = Callable[[str], str | None]
TASK_NAME = "came with the model"
VERSION_ONE = f"version {ADOPTED_VERSION}"
_HEAD, _BACKBONE = "head", "backbone"


@dataclass(frozen=True)
class AdoptedClassifier:
    """Uploaded classifier (backbone and head) that becomes version 1 of a new model.

    Attributes:
        id: id of the base.
        sha256: digest of its file.
        uploaded_for: its architecture, images and classifier.
        parts: stored parts of version 1, the head last; empty before `store_parts_and_delete_unused_on_exit`.
    """

    id: str
    sha256: str
    uploaded_for: UploadedBaseDescription
    parts: Sequence[StoredVersionPart] = field(default_factory=list)

    @property
    def classifier(self) -> UploadedClassifierDescription:
        """The head's tensors and the classes of the adopted classifier."""
        return self.uploaded_for["classifier"]


def find_classifier_named_as_base(
    db: Database, actor: Actor, base: object
) -> AdoptedClassifier | None:
    """Return the uploaded classifier that a request for a new model names as its base.

    Return None if the base is anything else.
    """
    if not isinstance(base, str) or not base.startswith("bas_"):
        return None
    with db.read() as session:
        row = _find_visible_base_row(session, actor, base)
        if row is None or "classifier" not in row.architecture:
            return None
        return AdoptedClassifier(row.id, row.sha256, row.architecture)


def complete_adoption_request(request: NewModel, adopted: AdoptedClassifier) -> NewModel:
    """Complete the request for a new model with the architecture and images of its classifier.

    Raises:
        Invalid: the request cannot have this classifier.
    """
    if request["scenario"] != "class":
        raise _make_adoption_error(
            "scenario",
            "A classifier is adopted in the class scenario, in which batches bring new classes: "
            'send "scenario": "class".',
        )
    if request.get("classes") is not None:
        raise _make_adoption_error(
            "classes", "The classes come with the classifier: leave out classes."
        )
    completed: NewModel = {**request, "base": ADOPTED}
    image = adopted.uploaded_for["image"]
    architecture = get_base_architecture(adopted.uploaded_for)
    completed.setdefault("architecture", {**architecture})
    completed["image"] = {
        "size": image["size"],
        "channels": image["channels"],
        **(request.get("image") or {}),
    }
    return completed


def require_method_usable_after_adoption(catalogue: RecipeCatalogue, recipe: RecipeOut) -> None:
    """Check that a recipe's method can continue from an adopted classifier, whose training images
    are unknown.

    Raises:
        InvalidRecipe: see `core.admission.applicability.check_recipe_from_start_and_list_warnings`.
    """
    start = NextTaskStartingPoint(VERSION_ONE, None, {"name": ADOPTED}, PLAIN, frozenset())
    check_recipe_from_start_and_list_warnings(catalogue, start, recipe, "class")


@contextmanager
def store_parts_and_delete_unused_on_exit(
    resources: UseCaseResources, adopted: AdoptedClassifier | None
) -> Iterator[AdoptedClassifier | None]:
    """Store the parts of an adopted classifier's version 1 while the model is created, and yield
    the classifier with them.

    Afterwards, either the base or its parts are in use: the others are deleted.
    """
    if adopted is None:
        yield None
        return
    stored = _store_version_one_parts(resources.blobs, adopted)
    try:
        yield stored
    finally:
        digests = sorted({adopted.sha256, *(part.sha256 for part in stored.parts)})
        delete_unreferenced_blobs(resources.db, resources.blobs, digests)


def _store_version_one_parts(blobs: Blobs, adopted: AdoptedClassifier) -> AdoptedClassifier:
    """Store an adopted classifier's parts as those of version 1, and return the classifier with
    them.
    """
    source = blobs.fetch_verified_file(adopted.sha256)
    present = {tensor.name for tensor in read_safetensors_header(source)}
    rows = len(adopted.classifier["classes"])
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for part, names in _map_uploaded_to_part_tensor_names(adopted.classifier).items():
            sources: list[tuple[Path, str, Rename]] = [(source, adopted.sha256, names.get)]
            absent = [to for name, to in names.items() if name not in present]
            # A head without a bias: our networks have one, and zeros give the same answers.
            if absent:
                sources.append(
                    _write_missing_classifier_tensors(
                        Path(folder) / "zeros.safetensors", absent, rows
                    )
                )
            path = Path(folder) / f"{part}.safetensors"
            with path.open("wb") as file:
                file.writelines(MergedSafetensorsFile(sources).read_chunks())
            sha256, size = blobs.put_file(path, move=True)
            kind = part.partition(".")[0]
            parts.append(StoredVersionPart(name=part, type=kind, sha256=sha256, bytes=size))
    return replace(adopted, parts=parts)


def create_adopted_lineage_and_delete_base(
    transaction: UseCaseTransaction,
    blobs: Blobs,
    model: Model,
    adopted: AdoptedClassifier,
    seed: int,
) -> None:
    """Add task 1 and versions 0 and 1 of a model that adopts a classifier, and delete the uploaded
    base.

    The caller deletes the file of the base after the commit.

    Raises:
        Invalid: the base is gone, or was adopted by another model.
    """
    session, now = transaction.session, transaction.now
    # First, so that no part is deleted between the check and the commit.
    references.lock_blob_references_against_deletion(session)
    row = _find_visible_base_row(session, transaction.actor, adopted.id, lock=True)
    if row is None or not all(blobs.has(part.sha256) for part in adopted.parts):
        raise _make_adoption_error("base", f"The base {adopted.id!r} is gone: upload it again.")
    session.delete(row)
    if get_base_architecture(
        adopted.uploaded_for
    ) != model.architecture or not have_same_image_size_and_channels(
        adopted.uploaded_for["image"], model.image
    ):
        raise _make_adoption_error(
            "base",
            explain_architecture_mismatch_of_base(
                adopted.uploaded_for, model.architecture, model.image
            ),
        )
    model.image = keep_image_decoding_of_model(adopted.uploaded_for["image"], model.image)
    statistics = adopted.uploaded_for.get("normalise")
    start = version_zero.VersionZeroPartsAndOrigin(
        [part for part in adopted.parts if part.type != _HEAD],
        {"base": BaseOrigin(id=adopted.id, sha256=adopted.sha256)},
        None if statistics is None else Normalisation.from_json(statistics),
    )
    move_origin = AliasMoveOrigin("create", transaction.actor.key_id)
    zero = version_zero.add_version_zero(session, model, start, move_origin, seed=seed, now=now)
    task = _build_adopted_task(model, adopted, now)
    session.add(task)
    classes = list(adopted.classifier["classes"])
    manifest = zero.manifest.model_copy(
        update={
            "version": ADOPTED_VERSION,
            "parent": 0,
            "task": task.number,
            "tasks": [task.number],
            "classes": classes,
            "parts": list(adopted.parts),
        }
    )
    version_zero.add_version_without_job(session, model, manifest, adopted.parts, now)
    model.next_task = model.next_version = ADOPTED_VERSION + 1
    model.head = ADOPTED_VERSION
    for alias in (LATEST, PRODUCTION):
        point_alias_to_version(session, model, alias, ADOPTED_VERSION, now, move_origin)
    size = sum(part.bytes for part in adopted.parts)
    # The bytes of the owner's own base are counted already, and the parts have little more.
    if row.owner_id == model.owner_id:
        size = max(0, size - row.bytes)
    stored_bytes.mark_owner_bytes_outdated(session, row.owner_id)
    stored_bytes.add_stored_bytes(session, model.owner_id, size)


def _build_adopted_task(model: Model, adopted: AdoptedClassifier, now: float) -> Task:
    """Return task 1 of an adopted classifier, with its classes and no images."""
    return Task(
        id=new_id("tsk"),
        model_id=model.id,
        number=ADOPTED_VERSION,
        name=TASK_NAME,
        sha256=adopted.sha256,
        bytes=0,
        archive_key=None,
        media_type=ADOPTED,
        classes=dict.fromkeys(adopted.classifier["classes"], 0),
        n_train=0,
        n_held_out=0,
        report={},
        standing=str(TaskStanding.LEARNED),
        standing_at=now,
        warnings=[],
        created_at=now,
    )


def _map_uploaded_to_part_tensor_names(
    classifier: UploadedClassifierDescription,
) -> dict[str, dict[str, str]]:
    """Map, for each part of a classifier, tensor names in the uploaded file to names in the part."""
    parts = {
        f"{_BACKBONE}.{number}": {name: f"{_BACKBONE}.{name}" for name in names}
        for number, names in enumerate(classifier["stages"], 1)
    }
    parameter_names = ("weight", "bias")
    return {
        **parts,
        _HEAD: {f"{classifier['head']}.{name}": f"{_HEAD}.{name}" for name in parameter_names},
    }


def _write_missing_classifier_tensors(
    path: Path, names: Sequence[str], rows: int
) -> tuple[Path, str, Rename]:
    """Write tensors that an uploaded classifier may lack: the head's bias, and counters of
    BatchNorm.

    Args:
        rows: rows of the head.
    """
    zeros: dict[str, npt.NDArray[Any]] = {
        name: np.zeros(rows, np.float32) if name == f"{_HEAD}.bias" else np.zeros((), np.int64)
        for name in names
    }
    save_file(zeros, path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest(), str


def _find_visible_base_row(
    session: Session, actor: Actor, base: str, *, lock: bool = False
) -> UploadedBase | None:
    query = select(UploadedBase).where(
        UploadedBase.id == base, actor.build_visible_condition(UploadedBase.owner_id)
    )
    return session.scalar(query.with_for_update() if lock else query)


def _make_adoption_error(field: str, message: str) -> Invalid:
    return Invalid(message, fields=[{"field": field, "message": message}])
