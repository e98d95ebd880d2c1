"""Report of a decoded batch, and the decision whether the batch is usable."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.contract.reports.report import BatchReport, DuplicatesPolicy, FileReason
from core.errors import ArchiveHostile, Rejected
from core.ingest.decoding.decoder import (
    GOOD,
    GOOD_FIRST_FRAME,
    GOOD_PROFILE_IGNORED,
    GOOD_SMALL,
    LYING,
    REASON_BYTES,
)
from core.ingest.decoding.pool import DEADLY, IMAGE_CPU_S
from core.ingest.findings import equal_images
from core.ingest.first_report import IMAGES, build_batch_report_before_decoding
from core.ingest.layout import ArchiveLayout
from core.ingest.limits import BAD_SHARE, REPORT_ROWS
from core.ingest.names import quote_name


@dataclass
class ImageDecodingResults:
    """Verdict, digest and pixels of each image file after decoding an archive.

    Name, class number, membership in the archive's own test part, verdict, digest, and location of
    its pixels.
    """

    names: Callable[[int], str]
    labels: npt.NDArray[np.int64]
    test: npt.NDArray[np.bool_]
    verdicts: npt.NDArray[np.uint8]
    digests: npt.NDArray[np.uint8]
    reasons: Path
    pixels: Path


def build_decoded_batch_report_and_mask(
    decoded: ImageDecodingResults,
    layout: ArchiveLayout,
    policy: DuplicatesPolicy = "keep",
    max_bad: float = BAD_SHARE,
) -> tuple[BatchReport, npt.NDArray[np.bool_]]:
    """Return the report of a decoded batch, and a mask [N] of its usable images.

    Args:
        max_bad: share of images that may be damaged.

    Raises:
        Rejected: the batch is unusable.
        ArchiveHostile: an entry does not unpack to its declared size.
    """
    lying = np.flatnonzero(decoded.verdicts == LYING)
    if lying.size:
        raise ArchiveHostile(
            f"The entry {quote_name(decoded.names(int(lying[0])))} does not unpack to its declared size."
        )
    good = np.isin(decoded.verdicts, (GOOD, GOOD_FIRST_FRAME, GOOD_SMALL, GOOD_PROFILE_IGNORED))
    bad = np.flatnonzero(~good)
    rejected = _read_rejection_reasons(decoded, bad[:REPORT_ROWS].tolist())
    notes = list(layout.notes)
    frames = int((decoded.verdicts == GOOD_FIRST_FRAME).sum())
    if frames:
        notes.append(
            f"{frames} image{'s have' if frames > 1 else ' has'} several frames; the first was "
            f"taken"
        )
    profiles = int((decoded.verdicts == GOOD_PROFILE_IGNORED).sum())
    if profiles:
        notes.append(
            f"{profiles} image{'s have' if profiles > 1 else ' has'} a colour profile that is "
            "damaged or for other channels; it was ignored"
        )
    equal = equal_images.find_duplicates_and_label_conflicts(
        decoded.digests, decoded.labels, decoded.test, good
    )
    dropped = equal.repeated if policy == "drop" else np.zeros(len(good), np.bool_)
    report: BatchReport = {
        **_build_decoded_batch_report(rejected, len(bad), layout, notes),
        **equal_images.build_duplicate_report(equal, decoded.names, layout.classes, decoded.labels),
        "duplicates_policy": policy,
        "duplicates_dropped": int(dropped.sum()),
        "small": int((decoded.verdicts == GOOD_SMALL).sum()),
    }
    files, extra = len(good), {"report": report}
    # Before the share, which a sender may allow to be 1.
    if len(bad) == files:
        raise Rejected("Not one image of the batch could be decoded.", extra=extra)
    if len(bad) > max_bad * files:
        # Rounded up, or the share in the advice would be refused again.
        share = math.ceil(1000 * len(bad) / files) / 1000
        raise Rejected(
            f"{len(bad)} of {files} images could not be decoded, more than {100 * max_bad:.3g}%; "
            f"the first is {quote_name(rejected[0]['path'])}: {rejected[0]['reason']}. Mend them, or "
            f"leave them out with ?max_bad={share:g}.",
            extra=extra,
        )
    # With images that are dropped as equal: one of each stays, so that no class is lost by it.
    trained = np.bincount(decoded.labels[good & ~decoded.test], minlength=len(layout.classes))
    # A batch that only measures has no training image at all.
    if not trained.all() and not decoded.test.all():
        label = layout.classes[int(np.argmin(trained))]
        raise Rejected(
            f"No training image of the class {quote_name(label)} could be decoded.", extra=extra
        )
    return report, good & ~dropped


def _read_rejection_reasons(decoded: ImageDecodingResults, rows: list[int]) -> list[FileReason]:
    reasons: list[FileReason] = []
    with decoded.reasons.open("rb") as file:
        for row in rows:
            file.seek(row * REASON_BYTES)
            # The decoder may have cut the text within a character.
            reason = file.read(REASON_BYTES).rstrip(b"\0").decode("utf-8", "ignore")
            reasons.append({"path": decoded.names(row), "reason": reason})
    return reasons


def build_refusal_of_crashing_images(
    crashed: list[int], names: Callable[[int], str], layout: ArchiveLayout
) -> Rejected:
    """Return the error for a batch whose images crashed too many decoders; `crashed`: their rows."""
    report = _build_stopped_decoding_report(
        crashed, names, layout, "too many images crashed the decoder"
    )
    first = quote_name(report["rejected"][0]["path"])
    return Rejected(
        f"{len(crashed)} images crashed the decoder; the first is {first}. Remove them.",
        extra={"report": report},
    )


def build_refusal_of_slow_images(
    crashed: list[int], names: Callable[[int], str], layout: ArchiveLayout
) -> Rejected:
    """Return the error for a batch whose images took decoders too long; `crashed`: their rows."""
    report = _build_stopped_decoding_report(crashed, names, layout, "the images took too long")
    return Rejected(
        f"Decoding the images takes more than {IMAGE_CPU_S:.0f} s of CPU time each; save them in a "
        f"plainer form.",
        extra={"report": report},
    )


def _build_stopped_decoding_report(
    crashed: list[int], names: Callable[[int], str], layout: ArchiveLayout, why: str
) -> BatchReport:
    rejected: list[FileReason] = [{"path": names(row), "reason": DEADLY} for row in crashed]
    return _build_decoded_batch_report(
        rejected, len(crashed), layout, [f"decoding stopped before the end: {why}"]
    )


def _build_decoded_batch_report(
    rejected: list[FileReason], count: int, layout: ArchiveLayout, notes: Sequence[str]
) -> BatchReport:
    return {
        **build_batch_report_before_decoding(
            layout.ignored,
            layout.ignored_files,
            notes,
            "keep",
            layout.bad_entries,
            layout.bad_entries_count,
        ),
        "checked": IMAGES,
        "rejected": rejected,
        "rejected_count": count,
    }


def add_held_out_in_training_warning(
    decoded: ImageDecodingResults, good: npt.NDArray[np.bool_], warnings: list[str]
) -> None:
    """Add a warning if held-out images also occur in the training part, byte for byte."""
    held_out_digests, training_digests = (
        {digest.tobytes() for digest in decoded.digests[good & side]}
        for side in (decoded.test, ~decoded.test)
    )
    shared = len(held_out_digests & training_digests)
    if shared:
        warnings.append(
            f"{shared} held-out image{'s are' if shared > 1 else ' is'} in the training part too: "
            "accuracy there is flattered."
        )
