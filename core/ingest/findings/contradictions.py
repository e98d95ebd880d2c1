"""Images under two labels: equal pixels, which cannot both be learned, and nearly equal pixels.

Images are equal if their decoded pixels are, in the form that the model reads: the same photo saved
twice without loss is one image, whatever its bytes. Equal images are found by a digest of the
pixels, nearly equal ones by the bands of their hashes (`core.statistics.near_duplicates`). Neither search is quadratic.
"""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import starmap

import numpy as np
import numpy.typing as npt

from core.contract.reports.report import BatchReport, Conflict
from core.errors import Rejected
from core.ingest.findings.equal_images import find_duplicates_and_label_conflicts
from core.ingest.findings.traces import Digests, ImageFingerprints
from core.ingest.limits import REPORT_FILES
from core.ingest.names import quote_name
from core.statistics import near_duplicates
from core.statistics.near_duplicates import Rows

DIGEST_BYTES = 16
PICTURES = 10
"""Most contradictions of a kind that have a picture in the report."""
PICTURE_SIDE = 64
"""Side of a picture in a report, in pixels; a smaller image keeps its size."""
_Images = npt.NDArray[np.uint8]
Picture = Callable[[int], _Images]
"""Returns the pixels of an image of the batch, uint8 [S, S, C], by its row in the batch's
traces."""


@dataclass
class _ContradictionCountAndExamples:
    """Contradicting labels: their count, the first `max_listed` of them, and pictures of the first
    `PICTURES`.
    """

    max_listed: int
    count: int = 0
    first: list[Conflict] = field(default_factory=list)

    def add_contradiction_with_picture(
        self, conflict: Conflict, picture: Callable[[], _Images]
    ) -> None:
        self.count += 1
        if len(self.first) < PICTURES:
            conflict["picture"] = _encode_jpeg_thumbnail_data_url(picture())
        if len(self.first) < self.max_listed:
            self.first.append(conflict)


@dataclass
class LabelContradictions:
    """Contradicting labels of a batch: equal or nearly equal images under two labels."""

    equal: _ContradictionCountAndExamples = field(
        default_factory=lambda: _ContradictionCountAndExamples(REPORT_FILES)
    )
    near: _ContradictionCountAndExamples = field(
        default_factory=lambda: _ContradictionCountAndExamples(REPORT_FILES)
    )

    @classmethod
    def from_report(cls, report: BatchReport) -> "LabelContradictions":
        """Parse the contradicting labels in a stored report, so that more can be added."""
        return cls(
            _ContradictionCountAndExamples(
                REPORT_FILES, report.get("conflicts_count", 0), list(report.get("conflicts", []))
            ),
            _ContradictionCountAndExamples(
                REPORT_FILES,
                report.get("near_conflicts_count", 0),
                list(report.get("near_conflicts", [])),
            ),
        )

    def to_report(self) -> BatchReport:
        """Return contradicting labels as fields of a batch's report."""
        return {
            "conflicts": self.equal.first,
            "conflicts_count": self.equal.count,
            "near_conflicts": self.near.first,
            "near_conflicts_count": self.near.count,
        }


def digest_pixels_of_each_image(images: _Images) -> Digests:
    """Return a BLAKE2b digest of each image's pixels: uint8 [N, S, S, C] → uint8 [N, 16]."""
    digests = np.zeros((len(images), DIGEST_BYTES), np.uint8)
    for row, image in enumerate(images):
        digest = blake2b(image.tobytes(), digest_size=DIGEST_BYTES).digest()
        digests[row] = np.frombuffer(digest, np.uint8)
    return digests


def find_label_contradictions_in_batch(
    traces: ImageFingerprints, picture: Picture, places: Rows | None = None
) -> LabelContradictions:
    """Find images within a batch with equal or similar pixels and different labels.

    Args:
        traces: traces of the batch, with digests and labels.
        places: position of each image in the archive, which orders a pair; None: its row in
            `traces`.
    """
    pixels, labels = _get_digests_and_labels(traces)

    def order_row_pair(first: int, row: int) -> tuple[int, int]:
        return (first, row) if places is None or places[first] < places[row] else (row, first)

    everything = np.ones(len(labels), np.bool_)
    # Without parts: two labels contradict each other wherever the images are.
    pairs = find_duplicates_and_label_conflicts(pixels, labels, ~everything, everything).conflicts
    contradictions = LabelContradictions()
    for first, row in starmap(order_row_pair, pairs):
        # The picture is passed as a function, because only the first few are made.
        contradictions.equal.add_contradiction_with_picture(
            _build_label_conflict(traces, first, traces, row, None), partial(picture, row)
        )
    for first, row in starmap(
        order_row_pair,
        _remove_pairs_with_equal_pixels(
            near_duplicates.find_near_duplicates_with_other_label(
                traces.all_perceptual_hashes, labels
            ),
            pixels,
            pixels,
        ),
    ):
        contradictions.near.add_contradiction_with_picture(
            _build_label_conflict(traces, first, traces, row, None), partial(picture, row)
        )
    return contradictions


def add_label_contradictions_with_earlier_tasks(
    contradictions: LabelContradictions,
    traces: ImageFingerprints,
    tasks: Sequence[tuple[int, ImageFingerprints]],
    picture: Picture,
) -> None:
    """Add the batch's images that equal or resemble one of an earlier task under another label.

    Args:
        tasks: numbers and traces of the earlier tasks, with digests and labels.
    """
    pixels, labels = _get_digests_and_labels(traces)
    number_of = {name: number for number, name in enumerate(traces.classes)}
    numbered = [_number_labels_across_batches(theirs, number_of) for _, theirs in tasks]
    starts = np.cumsum([0, *map(len, numbered)])
    their_labels = np.concatenate([np.zeros(0, np.int64), *numbered])
    # The empty parts give shape and type where there are no tasks.
    their_pixels = np.concatenate(
        [pixels[:0], *(_get_digests_and_labels(theirs)[0] for _, theirs in tasks)]
    )
    hashes = np.concatenate(
        [traces.train[:0], *(theirs.all_perceptual_hashes for _, theirs in tasks)]
    )

    def build_conflict(first: int, row: int) -> Conflict:
        at = int(np.searchsorted(starts, first, "right")) - 1
        number, theirs = tasks[at]
        return _build_label_conflict(theirs, first - int(starts[at]), traces, row, number)

    for first, row in _find_equal_images_labelled_differently(
        their_pixels, their_labels, pixels, labels
    ):
        contradictions.equal.add_contradiction_with_picture(
            build_conflict(first, row), partial(picture, row)
        )
    pairs = near_duplicates.find_near_duplicates_with_other_label(
        traces.all_perceptual_hashes, labels, hashes, their_labels
    )
    for first, row in _remove_pairs_with_equal_pixels(pairs, their_pixels, pixels):
        contradictions.near.add_contradiction_with_picture(
            build_conflict(first, row), partial(picture, row)
        )


def describe_label_conflicts(report: BatchReport) -> str | None:
    """Return a sentence about images with contradicting labels; None if there are none."""
    count = report.get("conflicts_count", 0)
    if not count:
        return None
    first = report["conflicts"][0]
    (a, b), (x, y) = first["paths"], first["labels"]
    task = first.get("task")
    in_task = f" in task {task}" if task is not None else ""
    sentence = (
        "The same image has two classes"
        if count == 1
        else f"{count:,} times the same image has two classes"
    )
    example = f"{quote_name(a)} is {quote_name(x)}{in_task} and {quote_name(b)} is {quote_name(y)}"
    return f"{sentence}: {example}. What contradicts itself cannot be learned."


def refuse_unaccepted_label_contradictions(report: BatchReport) -> None:
    """Raise Rejected, with remedies, if images have two labels and the sender did not ask to keep
    them."""
    sentence = describe_label_conflicts(report)
    # Batches from before this policy lack it, and are learned as they are.
    if sentence is None or report.get("conflicts_policy", "keep") == "keep":
        return
    tasks = sorted({conflict["task"] for conflict in report["conflicts"] if "task" in conflict})
    advice = (
        "Correct the batch and send it again; to learn it as it is, send it with ?conflicts=keep."
    )
    if tasks:
        named = f"task {tasks[0]}" if len(tasks) == 1 else f"tasks {', '.join(map(str, tasks[:5]))}"
        advice += (
            f" Where {named} had the wrong label, roll back to the version before it, discard it, "
            "and send it again with the right one (“Correct a label” in the how-tos)."
        )
    raise Rejected(f"{sentence} {advice}", extra={"report": report})


def _get_digests_and_labels(traces: ImageFingerprints) -> tuple[Digests, Rows]:
    assert traces.pixels is not None and traces.labels is not None, "asked of traces that have both"
    return traces.pixels, traces.labels


def _number_labels_across_batches(traces: ImageFingerprints, number_of: dict[str, int]) -> Rows:
    """Number the labels of several tasks' images in common; new classes are added."""
    _, labels = _get_digests_and_labels(traces)
    for name in traces.classes:
        number_of.setdefault(name, len(number_of))
    return np.array([number_of[name] for name in traces.classes] or [0], np.int64)[labels]


def _find_equal_images_labelled_differently(
    pixels: Digests, labels: Rows, new_pixels: Digests, new_labels: Rows
) -> Iterator[tuple[int, int]]:
    """Yield pairs (earlier row, new row) of images with equal pixels and different labels."""
    # By half of each digest first: few of a large past are equal to any image of a small batch.
    candidates = np.flatnonzero(
        np.isin(
            _view_digest_prefixes_as_integers(pixels), _view_digest_prefixes_as_integers(new_pixels)
        )
    )
    earlier, new = _view_digests_as_bytes(pixels[candidates]), _view_digests_as_bytes(new_pixels)
    # Stable, so that the first of several equal images is the one that is named.
    order = np.argsort(earlier, kind="stable")
    ordered, order = earlier[order], candidates[order]
    left, right = np.searchsorted(ordered, new, "left"), np.searchsorted(ordered, new, "right")
    for row in np.flatnonzero(right > left).tolist():
        same = order[left[row] : right[row]]
        contradicting_rows = same[labels[same] != new_labels[row]]
        if contradicting_rows.size:
            yield int(contradicting_rows[0]), row


def _remove_pairs_with_equal_pixels(
    pairs: Sequence[tuple[int, int]], pixels: Digests, new_pixels: Digests
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of images whose pixels differ."""
    for first, row in pairs:
        # Equal pixels have equal hashes, but are reported as equal already.
        if pixels[first].tobytes() != new_pixels[row].tobytes():
            yield first, row


def _view_digest_prefixes_as_integers(digests: Digests) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(digests).view(np.uint64)[:, 0]


def _view_digests_as_bytes(digests: Digests) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(digests).view(f"S{DIGEST_BYTES}").ravel()


def _build_label_conflict(
    theirs: ImageFingerprints, first: int, traces: ImageFingerprints, row: int, task: int | None
) -> Conflict:
    _, labels = _get_digests_and_labels(traces)
    _, their_labels = _get_digests_and_labels(theirs)
    conflict: Conflict = {
        "paths": [theirs.names[first], traces.names[row]],
        "labels": [theirs.classes[their_labels[first]], traces.classes[labels[row]]],
    }
    if task is not None:
        conflict["task"] = task
    return conflict


def _encode_jpeg_thumbnail_data_url(image: _Images) -> str:
    """Return a small JPEG of an image as a data URL."""
    # imported here: decoding has processes of its own, and this one needs Pillow for a few pictures
    # only
    from PIL import Image

    mode = "L" if image.shape[-1] == 1 else "RGB"
    thumbnail = Image.fromarray(image[..., 0] if mode == "L" else image, mode)
    thumbnail.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    out = io.BytesIO()
    thumbnail.save(out, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
