"""Checks of the gate against production and other versions, judged from stored counts.

A loss counts if it exceeds its limit and McNemar's exact one-sided p is below `SIGNIFICANT`. A
check without images passes and says why nothing was measured. `features_collapsed` compares a
version with its ancestors by shares, not image by image (`core.lineage.feature_collapse`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from core.contract.features import AncestorFeatureComparison
from core.contract.gate import (
    Check,
    CheckPicture,
    GateCheck,
    GateLimits,
    GateOut,
    ImageCheck,
)
from core.contract.losses import (
    GateClassComparison,
    GateComparison,
    GateComparisons,
    NewlyMisclassifiedImage,
)
from core.lineage.feature_collapse import (
    LIMIT,
    compute_feature_accuracy_drop,
    find_ancestor_before_feature_collapse,
    find_ancestor_with_best_features,
    format_feature_accuracies,
)
from core.statistics.flips import compute_one_sided_mcnemar_p
from core.statistics.test_power import SIGNIFICANT
from core.text.counts import format_count_with_noun

CHECKS: tuple[Check, ...] = get_args(Check)
IMAGE_CHECKS: tuple[ImageCheck, ...] = get_args(ImageCheck)
NEW_GATE: GateLimits = {
    "forgotten": 0.04,
    "confused": 0.15,
    "class_lost": 0.10,
    "drifted": 0.15,
    "learned_nothing": 0.10,
    "features_collapsed": LIMIT,
}
"""Limits of a new model; see `docs/benchmarks.md` for the measurement."""
ALL_OFF: GateLimits = {
    "forgotten": None,
    "confused": None,
    "class_lost": None,
    "drifted": None,
    "learned_nothing": None,
    "features_collapsed": None,
}
LEAST_OF_CLASS = 5
"""Number of held-out images below which a class is not checked."""
LEAST_OF_NEW = 10
"""Number of held-out images of new classes below which the check on learning makes no statement."""
KNOWN_BEFORE = 0.7
"""Share of earlier tasks' held-out images of the batch's known classes that production gets right,
from which getting none of the batch's right means that its labels do not fit."""
_SHOWN = 4
_NAMED = 20
_Judge = Callable[[GateComparisons, float], GateCheck]


_BEFORE = "the version was made before this was counted"


@dataclass(frozen=True)
class _GateCheckOutcome:
    """Outcome of a gate check: the measured value, its p-value, and a sentence about the counts."""

    value: float
    p: float
    failed: bool
    text: str


def build_version_comparison_gate_checks(
    limits: GateLimits | GateOut,
    losses: GateComparisons | None,
    model_id: str,
    features: AncestorFeatureComparison | None = None,
    doubt: str | None = None,
) -> list[GateCheck]:
    """Check a version's losses against the limits of its gate.

    Args:
        limits: limits of the gate; a check without a limit is off.
        losses, features: stored counts; None if nothing was counted.
        model_id: id of the model, for the addresses of pictures.
        doubt: finding that most labels of the batch look wrong; it fails `learned_nothing`.
    """
    checks: list[GateCheck] = []
    for name in CHECKS:
        limit = limits.get(name)
        if limit is None:
            continue
        # Judged by counts of its own, which exist even if no images were compared one by one.
        if name == "features_collapsed":
            checks.append(_check_feature_accuracy_against_ancestors(features, limit))
            continue
        check = (
            _build_unmeasured_check(name, limit, _BEFORE)
            if losses is None
            else _JUDGES[name](losses, limit)
        )
        # Held-out images share the batch's labels, so a wrong batch may pass its own measurement.
        if name == "learned_nothing" and doubt is not None:
            check = _fail_learning_check_for_doubted_labels(check, doubt)
        if losses is not None and not check["passed"]:
            check["pictures"] = [
                _add_url_path_to_lost_image(one, model_id)
                for one in _select_newly_wrong_images(name, losses)
            ]
        checks.append(check)
    return checks


def _check_forgetting_limit(losses: GateComparisons, limit: float) -> GateCheck:
    """Check forgetting: the net loss on earlier tasks, among classes that both versions know."""
    count = losses["forgotten"]
    if count["missing"] is not None:
        return _build_unmeasured_check("forgotten", limit, count["missing"])
    share, p = (
        _compute_net_share_of_lost_images(count),
        compute_one_sided_mcnemar_p(count["negative"], count["positive"]),
    )
    # Both conditions: few images may lose a large share by chance, and among many images even a
    # tiny loss is significant.
    failed = share > limit and p < SIGNIFICANT
    compared = f"of {format_count_with_noun(count['images'], 'held-out image')} of earlier tasks"
    among = "among the classes that both know"
    text = (
        f"{compared} it gets {count['negative']} wrong that version {count['against']} gets right, "
        f"and {count['positive']} right that version {count['against']} gets wrong, {among}"
        if count["negative"] or count["positive"]
        else f"{compared} it gets the same ones right as version {count['against']}, {among}"
    )
    return _build_measured_check(
        "forgotten", limit, count, _GateCheckOutcome(share, p, failed, text)
    )


def _check_confusion_with_new_classes(losses: GateComparisons, limit: float) -> GateCheck:
    """Check confusion: the share of earlier images that are predicted as a class new in this
    batch.
    """
    count = losses["confused"]
    if count["missing"] is not None:
        return _build_unmeasured_check("confused", limit, count["missing"])
    share, p = (
        count["negative"] / count["images"],
        compute_one_sided_mcnemar_p(count["negative"], count["positive"]),
    )
    text = (
        f"of {format_count_with_noun(count['images'], 'held-out image')} of earlier tasks it calls "
        f"{count['negative']} by a class "
        f"that is new in this batch, though version {count['against']} gets them right"
    )
    failed = share > limit and p < SIGNIFICANT
    return _build_measured_check(
        "confused", limit, count, _GateCheckOutcome(share, p, failed, text)
    )


def _check_for_lost_classes(losses: GateComparisons, limit: float) -> GateCheck:
    """Check the recall of each class of which at least half was right before."""
    count = losses["class_lost"]
    if count["missing"] is not None:
        return _build_unmeasured_check("class_lost", limit, count["missing"])
    # A class that was mostly wrong before has little to lose.
    judged = [
        one
        for one in count["classes"]
        if one["images"] >= LEAST_OF_CLASS and 2 * one["before"] >= one["images"]
    ]
    if not judged:
        return _build_unmeasured_check(
            "class_lost",
            limit,
            f"no class of earlier tasks has {LEAST_OF_CLASS} held-out images of which half were "
            f"right",
        )
    lost_classes = [one for one in judged if _compute_class_recall(one) <= limit]
    worst = min(judged, key=_compute_class_recall)
    text = (
        f"it lost {_format_lost_classes(lost_classes, count['against'])}"
        if lost_classes
        else f"of the classes that version {count['against']} gets half right, {worst['label']} is "
        f"worst: {_count_correct_in_judged_version(worst)} of {worst['images']} right"
    )
    return {
        "name": "class_lost",
        "limit": limit,
        "value": _compute_class_recall(worst),
        "passed": not lost_classes,
        "against": count["against"] or 0,
        "images": count["images"],
        "classes": [one["label"] for one in lost_classes][:_NAMED],
        "detail": _format_sentence(text),
    }


def _check_drift_from_recent_best(losses: GateComparisons, limit: float) -> GateCheck:
    """Check drift: the net loss on each earlier task against the best of the recent versions."""
    count = losses["drifted"]
    if count["missing"] is not None:
        return _build_unmeasured_check("drifted", limit, count["missing"])
    shares = {
        one["task"]: (one["negative"] - one["positive"]) / one["images"] for one in count["tasks"]
    }
    # Bonferroni correction: the worst of many tasks may look significant by chance.
    drifted = [
        one
        for one in count["tasks"]
        if shares[one["task"]] > limit
        and compute_one_sided_mcnemar_p(one["negative"], one["positive"]) * count["compared"]
        < SIGNIFICANT
    ]
    first = max(drifted or count["tasks"], key=lambda one: shares[one["task"]])
    text = (
        f"of {format_count_with_noun(first['images'], 'held-out image')} of task {first['task']} it gets "
        f"{first['negative']} wrong "
        f"that version {first['against']}, the best of the last versions there, gets right, and "
        f"{first['positive']} right that it gets wrong"
    )
    if len(drifted) > 1:
        text += f"; {format_count_with_noun(len(drifted) - 1, 'more task')} drifted too"
    # The correction's factor may take the product above 1.
    p = min(
        1.0, compute_one_sided_mcnemar_p(first["negative"], first["positive"]) * count["compared"]
    )
    judged = _GateCheckOutcome(shares[first["task"]], p, bool(drifted), text)
    check = _build_measured_check("drifted", limit, count, judged)
    return {
        **check,
        "against": first["against"],
        "tasks": [one["task"] for one in drifted][:_NAMED],
    }


def _check_learning_of_batch_classes(losses: GateComparisons, limit: float) -> GateCheck:
    """Check learning: accuracy on new classes, and net loss and accuracy on known classes of the
    batch.

    The accuracy on known classes counts where production gets these classes right in earlier tasks:
    then the batch's labels contradict what was learned.
    """
    new_counts, known_counts = losses["new"], losses["known"]
    p_value = compute_one_sided_mcnemar_p(known_counts["negative"], known_counts["positive"])
    is_worse = known_counts["missing"] is None and p_value < SIGNIFICANT
    has_new = new_counts["missing"] is None and new_counts["images"] >= LEAST_OF_NEW
    if not has_new and known_counts["missing"] is not None:
        few = (
            f"the batch has {format_count_with_noun(new_counts['images'], 'held-out image')} of new "
            f"classes, {LEAST_OF_NEW} are needed"
        )
        return _build_unmeasured_check(
            "learned_nothing", limit, few if new_counts["images"] else str(new_counts["missing"])
        )
    share = new_counts["positive"] / new_counts["images"] if has_new else None
    is_blank = share is not None and share <= limit
    right_known, known_before = _count_known_class_correct_now_and_before(losses)
    contradicts = known_before is not None and right_known <= limit * known_counts["images"]
    texts = []
    if has_new:
        texts.append(
            f"of {format_count_with_noun(new_counts['images'], 'held-out image')} of the batch's new "
            f"classes it gets {new_counts['positive']} right"
        )
    if known_counts["missing"] is None:
        texts.append(
            f"of the batch's {format_count_with_noun(known_counts['images'], 'held-out image')} of known "
            f"classes it gets {known_counts['negative']} wrong that version "
            f"{known_counts['against']} gets right, and {known_counts['positive']} right that it "
            "gets wrong"
        )
    if contradicts and known_before is not None:
        right, images = known_before
        texts.append(
            f"it gets {right_known} of them right, though version {known_counts['against']} gets "
            f"{right} of {format_count_with_noun(images, 'held-out image')} of these classes in earlier "
            f"tasks right: are the labels swapped or "
            "wrong? Look at them: report.data.suspects of the task, and pictures on its page. "
            "Correct wrong labels and send the batch again"
        )
        if not is_blank:
            share = right_known / known_counts["images"]
    failed = is_blank or is_worse or contradicts
    worst = (new_counts if is_blank else known_counts)["classes"][:_NAMED] if failed else []
    return {
        "name": "learned_nothing",
        "limit": limit,
        "value": share,
        "passed": not failed,
        "images": new_counts["images"] + known_counts["images"],
        "p": p_value,
        "classes": [one["label"] for one in worst],
        "detail": _format_sentence("; ".join(texts)),
    }


def _fail_learning_check_for_doubted_labels(check: GateCheck, doubt: str) -> GateCheck:
    """Fail the learning check of the gate because most labels of the batch look wrong."""
    detail = doubt if check["passed"] else f"{check['detail']} {doubt}"
    failed: GateCheck = {**check, "passed": False, "detail": detail}
    # A check that fails has a reason, even if no image was measured.
    failed.pop("not_measured", None)
    return failed


def _count_known_class_correct_now_and_before(
    losses: GateComparisons,
) -> tuple[int, tuple[int, int] | None]:
    """Count correct predictions of known classes: in the batch now, and in earlier tasks by
    production.

    The latter is None for fewer than `LEAST_OF_NEW` images on either side, or where production gets
    less than `KNOWN_BEFORE` of them right.
    """
    known_counts, earlier_counts = losses["known"], losses["class_lost"]
    if known_counts["missing"] is not None or earlier_counts["missing"] is not None:
        return 0, None
    right_now = sum(_count_correct_in_judged_version(one) for one in known_counts["classes"])
    # By task too: with a head for each task, equal labels are different classes.
    names = {(one["label"], one["task"]) for one in known_counts["classes"]}
    counted = [one for one in earlier_counts["classes"] if (one["label"], one["task"]) in names]
    right, images = (sum(one[key] for one in counted) for key in ("before", "images"))
    is_known = images >= LEAST_OF_NEW and right >= KNOWN_BEFORE * images
    is_enough = known_counts["images"] >= LEAST_OF_NEW
    return right_now, (right, images) if is_known and is_enough else None


def _check_feature_accuracy_against_ancestors(
    count: AncestorFeatureComparison | None, limit: float
) -> GateCheck:
    """Check the features: a linear discriminant's accuracy on them against that of ancestor
    versions.
    """
    name: Check = "features_collapsed"
    if count is None:
        return _build_unmeasured_check(name, limit, _BEFORE)
    collapsed = find_ancestor_before_feature_collapse(count, limit)
    one = collapsed or find_ancestor_with_best_features(count)
    if one is None:
        return _build_unmeasured_check(name, limit, str(count["missing"]))
    now, before = format_feature_accuracies(one)
    label = "the last good version" if collapsed else "the best of the last versions"
    subject = "a linear discriminant on its features"
    if collapsed:
        subject = "its features have collapsed: a linear discriminant on them"
    text = (
        f"{subject} gets {now} held-out images of earlier tasks right, on those of version "
        f"{one['version']}, {label}, {before}, among the classes that both know"
    )
    return {
        "name": name,
        "limit": limit,
        "value": compute_feature_accuracy_drop(one),
        "passed": collapsed is None,
        "against": one["version"],
        "images": one["images"],
        "detail": _format_sentence(text),
    }


_JUDGES: Mapping[ImageCheck, _Judge] = {
    "forgotten": _check_forgetting_limit,
    "confused": _check_confusion_with_new_classes,
    "class_lost": _check_for_lost_classes,
    "drifted": _check_drift_from_recent_best,
    "learned_nothing": _check_learning_of_batch_classes,
}


def _build_measured_check(
    name: Check, limit: float, count: GateComparison, judged: _GateCheckOutcome
) -> GateCheck:
    """Build the result of a gate check that was measured."""
    # Classes that gained more than they lost did not cause the failure.
    losing = [one for one in count["classes"] if one["negative"] > one["positive"]]
    worst = losing if judged.failed else []
    text = judged.text
    if worst:
        text = f"{text}, most of {_format_classes_with_wrong_images(worst)}"
    return {
        "name": name,
        "limit": limit,
        "value": judged.value,
        "passed": not judged.failed,
        "against": count["against"] or 0,
        "images": count["images"],
        "negative": count["negative"],
        "positive": count["positive"],
        "classes": [one["label"] for one in worst][:_NAMED],
        "p": judged.p,
        "detail": _format_sentence(text),
    }


def _build_unmeasured_check(name: Check, limit: float, why: str) -> GateCheck:
    """Build the result of a gate check that could not be measured; it passes."""
    return {
        "name": name,
        "limit": limit,
        "value": None,
        "passed": True,
        "not_measured": why,
        "detail": _format_sentence(f"not measured: {why}"),
    }


def _select_newly_wrong_images(
    name: ImageCheck, losses: GateComparisons
) -> list[NewlyMisclassifiedImage]:
    """Select example images that a version newly predicts wrongly, to show with a gate check."""
    if name != "learned_nothing":
        return losses[name]["pictures"]
    return [*losses["known"]["pictures"], *losses["new"]["pictures"]][:_SHOWN]


def _add_url_path_to_lost_image(image: NewlyMisclassifiedImage, model_id: str) -> CheckPicture:
    address = f"/v1/models/{model_id}/tasks/{image['task']}/images/held_out/{image['index']}.png"
    return {**image, "image": address}


def _compute_net_share_of_lost_images(count: GateComparison) -> float:
    """Compute the net loss (lost minus gained images) as a share of the images, in [-1, 1]."""
    return (count["negative"] - count["positive"]) / count["images"]


def _count_correct_in_judged_version(one: GateClassComparison) -> int:
    """Count the images of a class that the judged version predicts correctly."""
    return one["before"] - one["negative"] + one["positive"]


def _compute_class_recall(one: GateClassComparison) -> float:
    """Compute the recall of a class, in [0, 1]."""
    return _count_correct_in_judged_version(one) / one["images"]


def _format_lost_classes(lost: Sequence[GateClassComparison], against: int | None) -> str:
    """Format lost classes as `cat (0 of 12 right, 11 by version 3) and dog (…)`."""
    texts = [
        f"{one['label']} ({_count_correct_in_judged_version(one)} of {one['images']} right, "
        f"{one['before']} by version {against})"
        for one in lost
    ]
    # A long list begins with its length, since only its first classes are named.
    return (
        f"{len(texts)} classes: {_join_first_texts(texts)}"
        if len(texts) > 2
        else _join_first_texts(texts)
    )


def _format_classes_with_wrong_images(worst: Sequence[GateClassComparison]) -> str:
    """Format classes and their images that turned wrong, as `cat (9 of 12) and dog (8 of 12)`."""
    return _join_first_texts(
        [f"{one['label']} ({one['negative']} of {one['images']})" for one in worst]
    )


def _join_first_texts(texts: Sequence[str]) -> str:
    """Join texts with commas and "and"; only the first few are named."""
    named = list(texts[:_SHOWN])
    if len(texts) > _SHOWN:
        named.append(f"{len(texts) - _SHOWN} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _format_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
