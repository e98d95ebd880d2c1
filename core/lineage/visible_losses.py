"""Losses that the held-out images of earlier tasks can reveal, in sentences."""

from core.contract.gate import GateLimits, GateOut, Visibility
from core.contract.losses import GateComparisons
from core.lineage.checks import LEAST_OF_CLASS
from core.statistics.flips import compute_one_sided_mcnemar_p
from core.statistics.test_power import SIGNIFICANT
from core.text.counts import format_count_with_noun


def describe_detectable_losses(
    limits: GateLimits | GateOut, losses: GateComparisons | None
) -> Visibility | None:
    """Describe how small a loss the gate's compared images could reveal.

    Return None if nothing was checked or compared.
    """
    if (
        losses is None
        or limits.get("forgotten") is None
        or losses["forgotten"]["missing"] is not None
    ):
        return None
    visible = losses["visible"]
    images, loss, more, loss_with_more = (
        visible["images"],
        visible["loss"],
        visible["more"],
        visible["then"],
    )
    text = (
        f"The gate compared {format_count_with_noun(images, 'held-out image')} of earlier tasks: "
    )
    if loss is None:
        text += "too few to tell any loss from chance"
        if more is not None and loss_with_more is not None:
            text += f"; with {more} more, it can tell one of {_format_percentage_points(loss_with_more)}"
    else:
        text += f"it may miss a loss of less than {_format_percentage_points(loss)}"
        if more is not None and loss_with_more is not None:
            text += f", and with {more} more, one of less than {100 * loss_with_more:.0f}"
    return {**visible, "detail": f"{text}.{_describe_detectable_class_loss(limits, losses)}"}


def _describe_detectable_class_loss(limits: GateLimits | GateOut, losses: GateComparisons) -> str:
    """Describe the smallest loss of one class that the gate would notice, and how to notice smaller
    ones.
    """
    sizes = sorted({one["images"] for one in losses["class_lost"]["classes"]})
    if not sizes:
        return ""
    images = sizes[0]
    noticed = find_smallest_detectable_class_loss(limits, losses, images)
    # The stored list of classes is cut, so that the smallest class may be missing in it.
    counted = sum(one["images"] for one in losses["class_lost"]["classes"])
    is_same = len(sizes) == 1 and counted == losses["class_lost"]["images"]
    have = "Each earlier class has" if is_same else "The smallest earlier class has"
    if noticed is None:
        missed = "could lose all of them unnoticed"
    elif noticed > 1:
        missed = f"could lose {noticed - 1} of these unnoticed"
    else:
        missed = "can lose none of these unnoticed"
    return (
        f" {have} {format_count_with_noun(images, 'image')} among them, and {missed}. To notice smaller losses, "
        "send more held-out images of each class, in the folder `test` of a batch."
    )


def find_smallest_detectable_class_loss(
    limits: GateLimits | GateOut, losses: GateComparisons, images: int
) -> int | None:
    """Find the smallest loss of one class's images that fails a gate check, all else unchanged.

    Args:
        images: held-out images of the class, all of which were right before.

    Returns:
        A number of images from 1 to `images`; None: no check notices even the loss of all.
    """
    return next(
        (
            lost
            for lost in range(1, images + 1)
            if _is_class_loss_detected_by_gate(limits, losses, images, lost)
        ),
        None,
    )


def _is_class_loss_detected_by_gate(
    limits: GateLimits | GateOut, losses: GateComparisons, images: int, lost: int
) -> bool:
    """Return True if a gate check fails when one class loses `lost` of its images."""
    class_lost, drifted = limits.get("class_lost"), limits.get("drifted")
    forgotten = limits.get("forgotten")
    if class_lost is not None and images >= LEAST_OF_CLASS and images - lost <= class_lost * images:
        return True
    p = compute_one_sided_mcnemar_p(lost, 0)
    if (
        forgotten is not None
        and p < SIGNIFICANT
        and lost > forgotten * losses["forgotten"]["images"]
    ):
        return True
    # By any task, since the counts do not say which task a class is of.
    return drifted is not None and any(
        lost > drifted * task["images"] and p * losses["drifted"]["compared"] < SIGNIFICANT
        for task in losses["drifted"]["tasks"]
    )


def _format_percentage_points(share: float) -> str:
    return f"{100 * share:.0f} points"
