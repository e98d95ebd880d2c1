"""Images of a task: a list, one image as a picture, and several on a sheet.

They are read from the task's dataset by memory map, once the blob is verified. `find_task_split_dataset`
uses only the database. The other functions read the blob, so they run where an API process does its
heavy work.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image
from sqlalchemy import select

from core.contract.responses.task_image import Split, TaskImagePage
from core.database.label_names import order_task_labels_by_dataset_number
from core.database.session import Database
from core.database.tables import Model, Task
from core.errors import Invalid, NotFound, ObjectGone, StoredObjectDamaged, WrongState
from core.ingest.dataset import Images, Labels, memory_map_image_dataset
from core.ingest.findings.traces import read_image_fingerprints
from core.requests.actor import Actor, find_model, translate_deleted_file_errors
from core.requests.pages import decode_page_cursor, encode_page_cursor
from core.requests.timestamps import format_rfc3339
from core.retention import damage
from core.storage import Blobs

MAX_TILES = 64
"""Maximum number of images of one sheet."""


@dataclass(frozen=True)
class TaskSplitDatasetReference:
    """Training or held-out images of a task: digest of the dataset, and the labels that its numbers
    mean.

    `traces`: digest of the task's traces, which have the paths; None if there are none.
    """

    task: int
    split: Split
    sha256: str
    labels: list[str]
    traces: str | None = None

    def build_picture_etag(self, rows: Sequence[int]) -> str:
        """Return the ETag of a picture of some of the task's images."""
        # The images of a digest never change, so that the pictures need not be made for the tag.
        named = f"{self.sha256} {' '.join(map(str, rows))}"
        return f'"{hashlib.sha256(named.encode()).hexdigest()[:32]}"'


def find_task_split_dataset(
    db: Database, actor: Actor, model: str, number: int, split: Split
) -> TaskSplitDatasetReference:
    """Find the training or held-out images of a task.

    Raises:
        NotFound: the caller sees no such model or task, or the task's data was deleted.
        Gone: the part is not retained: it was only counted, or its retention time is over.
        WrongState: the batch is not decoded yet, or was rejected.
        StoredObjectDamaged: its dataset is known to be damaged.
    """
    with db.read() as session:
        owner = find_model(session, actor, model)
        task = session.scalar(select(Task).where(Task.model_id == owner.id, Task.number == number))
        if task is None:
            raise NotFound(f"The model has no task {number}.")
        sha256 = _find_task_dataset_digest(owner, task, split)
        damage.require_undamaged_model_objects(session, owner.id, [Blobs.make_blob_key(sha256)])
        traces = task.traces_sha256 if task.held_out_deleted_at is None else None
        return TaskSplitDatasetReference(
            number, split, sha256, order_task_labels_by_dataset_number(owner, task.classes), traces
        )


@contextmanager
def translate_deleted_image_errors(
    db: Database, actor: Actor, model: str, part: TaskSplitDatasetReference
) -> Iterator[None]:
    """Convert errors of code that reads a task's images, if these are deleted meanwhile.

    Raises:
        NotFound, Gone: raised in place of `StoredObjectDamaged` if the part has been deleted meanwhile,
        see `find_task_split_dataset`.
        StoredObjectDamaged: otherwise; the message says what is damaged and what to do.
    """
    try:
        with translate_deleted_file_errors(db, actor, model):
            yield
    except StoredObjectDamaged:
        # Called for its clearer error, if the part was deleted meanwhile.
        find_task_split_dataset(db, actor, model, part.task, part.split)
        raise


def list_task_split_images(
    blobs: Blobs,
    part: TaskSplitDatasetReference,
    *,
    label: str | None,
    limit: int,
    cursor: str | None,
) -> TaskImagePage:
    """Return a page of a task's training or held-out images, or of one class among them.

    Raises:
        Invalid: the part has no such class, or the cursor belongs to another list.
    """
    after = -1 if cursor is None else int(decode_page_cursor(cursor, int))
    if label is not None and label not in part.labels:
        raise Invalid(
            f"Task {part.task} has no class {label[:100]!r}.",
            fields=[{"field": "class", "message": "unknown"}],
        )
    _, labels = _open_task_image_arrays(blobs, part)
    rows = (
        np.arange(len(labels))
        if label is None
        else np.flatnonzero(labels == part.labels.index(label))
    )
    # One more than the page shows tells if there is a next page.
    page_rows = rows[np.searchsorted(rows, after, side="right") :][: limit + 1].tolist()
    paths = _read_batch_paths_of_task_images(blobs, part, len(labels))
    return {
        "items": [
            {
                "index": row,
                "label": part.labels[labels[row]],
                "path": paths[row] if paths else None,
            }
            for row in page_rows[:limit]
        ],
        "total": len(rows),
        "next_cursor": encode_page_cursor(page_rows[limit - 1]) if len(page_rows) > limit else None,
    }


def render_task_image(blobs: Blobs, part: TaskSplitDatasetReference, row: int) -> bytes:
    """Render one image of a task as PNG, pixel by pixel.

    Raises:
        NotFound: the part has fewer images.
    """
    images, _ = _open_task_image_arrays(blobs, part)
    if row >= len(images):
        raise NotFound(
            f"The {part.split} part of task {part.task} has {len(images)} images, from 0 on."
        )
    return encode_image_array_as_png(images[row])


def render_contact_sheet(
    blobs: Blobs, part: TaskSplitDatasetReference, rows: Sequence[int]
) -> bytes:
    """Render several images of a task side by side as one PNG, in the given order.

    Raises:
        Invalid: the part has fewer images.
    """
    images, _ = _open_task_image_arrays(blobs, part)
    if max(rows) >= len(images):
        raise Invalid(
            f"The {part.split} part of task {part.task} has {len(images)} images: {max(rows)} is "
            f"none of them.",
            fields=[{"field": "rows", "message": f"0 to {len(images) - 1}"}],
        )
    return encode_image_sheet_as_png(images[list(rows)])


def parse_image_numbers(text: str) -> list[int]:
    """Parse image numbers from a text such as `1,5,7`; the route has checked its form.

    Raises:
        Invalid: there are more than a sheet takes.
    """
    rows = [int(number) for number in text.split(",")]
    if len(rows) > MAX_TILES:
        raise Invalid(
            f"A sheet shows {MAX_TILES} images at most, and {len(rows)} are asked for.",
            fields=[{"field": "rows", "message": f"at most {MAX_TILES}"}],
        )
    return rows


def _read_batch_paths_of_task_images(
    blobs: Blobs, part: TaskSplitDatasetReference, size: int
) -> list[str]:
    """Return the path in the batch of each of a task's images; none if they are not stored, or
    damaged.
    """
    if part.traces is None:
        return []
    try:
        traces = read_image_fingerprints(blobs.fetch_verified_file(part.traces))
    except (StoredObjectDamaged, ValueError):  # the damage has been recorded; the images are there
        return []
    first = len(traces.train)
    paths = traces.names[:first] if part.split == "train" else traces.names[first:]
    # Traces of another decoding do not say where these images come from.
    return paths if len(paths) == size else []


def _open_task_image_arrays(blobs: Blobs, part: TaskSplitDatasetReference) -> tuple[Images, Labels]:
    """Open a task's training or held-out images and labels as arrays."""
    return memory_map_image_dataset(blobs.fetch_verified_file(part.sha256))


def _find_task_dataset_digest(model: Model, task: Task, split: Split) -> str:
    """Return the digest of a task's training or held-out dataset; for errors see
    `find_task_split_dataset`.
    """
    if task.data_deleted_at is not None:
        raise NotFound(
            f"The data of task {task.number} was deleted on {format_rfc3339(task.data_deleted_at)}."
        )
    is_train = split == "train"
    if task.belongs_to_adopted_classifier and (is_train or task.held_out_sha256 is None):
        raise WrongState(
            f"Task {task.number} came with the model, without training images."
            if is_train
            else f"Task {task.number} came with the model, and no held-out image of it was sent. "
            "Send them as a batch with a folder test and nothing else.",
            extra={"state": task.standing or "queued"},
        )
    sha256 = task.train_sha256 if is_train else task.held_out_sha256
    deleted_at = task.train_deleted_at if is_train else task.held_out_deleted_at
    if deleted_at is not None:
        why = (
            "training images are kept for the days that the model's training_data_days says"
            if is_train
            else 'the model keeps counts of held-out images alone ("held_out": "counts")'
            if model.held_out == "counts"
            else "its batch was given up"
        )
        part_name = "training" if is_train else "held-out"
        raise ObjectGone(
            f"The {part_name} images of task {task.number} went on {format_rfc3339(deleted_at)}: "
            f"{why}."
        )
    if sha256 is None:
        raise WrongState(
            f"Task {task.number} has no images yet: its batch is decoded when its job begins, or "
            f"was rejected then.",
            extra={"state": task.standing or "queued"},
        )
    return sha256


COLUMNS = 8
"""Tiles in a row of a sheet."""
TILE_PIXELS = 128
"""Largest side of a tile in pixels; larger images are reduced."""


def encode_image_array_as_png(image: Images) -> bytes:
    """Encode an image uint8 [S, S, C], C 1 (grey) or 3 (RGB), as PNG with the same pixels."""
    return _encode_png(_convert_array_to_pillow_image(image))


def encode_image_sheet_as_png(images: Images) -> bytes:
    """Arrange images uint8 [N, S, S, C] on a PNG sheet, row by row, filled with black."""
    tiles = [_make_sheet_tile(image) for image in images]
    # All images of a dataset have one size.
    side, columns = tiles[0].width, min(len(tiles), COLUMNS)
    sheet = Image.new(tiles[0].mode, (columns * side, -(-len(tiles) // columns) * side))
    for position, tile in enumerate(tiles):
        sheet.paste(tile, (position % columns * side, position // columns * side))
    return _encode_png(sheet)


def _make_sheet_tile(image: Images) -> Image.Image:
    picture = _convert_array_to_pillow_image(image)
    if picture.width <= TILE_PIXELS:
        return picture
    return picture.resize((TILE_PIXELS, TILE_PIXELS), Image.Resampling.BOX)


def _convert_array_to_pillow_image(image: Images) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image))


def _encode_png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
