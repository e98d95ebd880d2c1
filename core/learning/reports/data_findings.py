"""Findings from the figures of a data report: sentences for a person, and those that may hold a
job."""

from __future__ import annotations

from collections.abc import Collection

from core.contract.reports.data_report import DataReport, Finding, FindingKind, Near, NearDuplicates
from core.text.counts import format_count_with_noun

CONFLICTS = 0.01
"""Share of images whose pixels have two classes, from which it is a finding."""
SEEN = 0.2
"""Share of held-out images that are also training images, or of training images held out before.

Simple pictures, such as digits, resemble each other in up to one of eight.
"""
SUSPECTS = 0.03
"""Share of the judged training images whose label looks wrong; hard images alone make one to two
percent."""
SHIFT = 0.01
"""p-value below which images of known classes have shifted."""

TAKEN = 0.05
"""Share of a new class that is confidently taken for another one; smaller shares are not
reported."""


def build_data_findings(
    data: DataReport, train: int, held_out: int, settled: Collection[FindingKind] = ()
) -> list[Finding]:
    """Build the findings of a data report, those that hold a job first.

    Args:
        train, held_out: number of images of the batch.
        settled: findings that a person has accepted: they hold nothing.
    """
    near = data.get("near_duplicates")
    candidates = [
        _build_mislabelled_classes_finding(data),
        _build_label_conflict_finding(data, train + held_out),
        # Mislabelled classes explain most suspicious images: one finding is enough.
        None if data.get("mislabelled") else _build_suspect_images_finding(data),
        _build_class_shift_finding(data),
        _build_new_classes_taken_for_known_finding(data),
        _build_small_classes_finding(data),
    ]
    if near is not None:
        candidates += [
            _build_held_out_leak_finding(near, held_out),
            _build_training_on_earlier_held_out_finding(near, train),
            _build_repeated_images_finding(near, train + held_out),
        ]
    findings: list[Finding] = [
        {**one, "holds": one["holds"] and one["kind"] not in settled}
        for one in candidates
        if one is not None
    ]
    # A stable sort: within both groups the order of the checks stays.
    return sorted(findings, key=lambda one: not one["holds"])


def _build_label_conflict_finding(data: DataReport, images: int) -> Finding | None:
    count = data.get("conflicts", 0)
    if not count:
        return None
    text = (
        f"{_format_images_with_verb(count)} under two classes, pixel for pixel "
        f"({_format_image_share(count, images)} of the batch): one of "
        "the labels is wrong. Keep the right one of each pair."
    )
    return {"kind": "conflicts", "holds": count > CONFLICTS * images, "text": text}


def _build_mislabelled_classes_finding(data: DataReport) -> Finding | None:
    doubted = data.get("mislabelled") or []
    if not doubted:
        return None
    each = [
        f"{one['said']} for {one['images']:,} of {one['of']:,} images labelled {one['label']}"
        for one in doubted[:5]
    ]
    num_others = len(doubted) - 5
    more = (
        ""
        if num_others < 1
        else f", and others for {format_count_with_noun(num_others, 'more class', 'more classes')}"
    )
    right, held_out = (sum(one[key] for one in doubted) for key in ("right", "held_out"))
    these = "this class" if len(doubted) == 1 else "these classes"
    text = (
        f"Version {doubted[0]['version']} predicts {', '.join(each)}{more}, though of {held_out:,} "
        f"held-out images of {these} in earlier tasks it gets {right:,} right: are the labels "
        "swapped or wrong? Look at them: report.data.suspects of the task, and pictures on its "
        "page. Correct wrong labels and send the batch again; if the labels are right, the model "
        "needs these images."
    )
    return {"kind": "suspects", "holds": True, "text": text}


def _build_small_classes_finding(data: DataReport) -> Finding | None:
    few = data.get("few") or []
    if not few:
        return None
    named = f"{', '.join(few[:10])}{' and others' if len(few) > 10 else ''}"
    text = f"Fewer than 5 images of {named}: what so few show is hardly learned. Send more of them."
    return {"kind": "balance", "holds": False, "text": text}


def _build_held_out_leak_finding(near: NearDuplicates, held_out: int) -> Finding | None:
    count = near["held_out"]["count"]
    if not count:
        return None
    text = (
        f"{_format_images_with_verb(count)} held out "
        f"({_format_image_share(count, held_out)}) and nearly the same "
        f"in the training part{_format_duplicate_example(near['held_out'])}: accuracy on this task is "
        f"flattered. Put images of one scene into one part."
    )
    return {"kind": "near_duplicates", "holds": count > SEEN * held_out, "text": text}


def _build_training_on_earlier_held_out_finding(near: NearDuplicates, train: int) -> Finding | None:
    tasks = [task for task in near["earlier"] if task["held_out"]]
    count = sum(task["held_out"] for task in tasks)
    if not count:
        return None
    named = ", ".join(str(task["task"]) for task in tasks[:5])
    which = (
        f"task {named}"
        if len(tasks) == 1
        else f"tasks {named}{' and others' if len(tasks) > 5 else ''}"
    )
    text = (
        f"{_format_images_with_verb(count)} learned from now "
        f"({_format_image_share(count, train)} of the training part) "
        f"and nearly the same as images that {which} held out: accuracy there is flattered "
        "from now on. Leave them out of the batch."
    )
    return {"kind": "near_duplicates", "holds": count > SEEN * train, "text": text}


def _build_repeated_images_finding(near: NearDuplicates, images: int) -> Finding | None:
    count = near["within"]["count"]
    if not count:
        return None
    repeats = "repeats another one" if count == 1 else "repeat others"
    text = (
        f"{format_count_with_noun(count, 'image')} ({_format_image_share(count, images)}) nearly "
        f"{repeats} of the batch{_format_duplicate_example(near['within'])}: they teach little more."
    )
    return {"kind": "near_duplicates", "holds": False, "text": text}


def _build_suspect_images_finding(data: DataReport) -> Finding | None:
    count, examined = data.get("suspects_count", 0), data.get("examined", 0)
    if not count:
        return None
    first = data["suspects"][0]
    which = first["path"] or f"training image {first['index']}"
    text = (
        f"{count:,} of {examined:,} training images "
        f"({_format_image_share(count, examined)}) may have a "
        f"wrong label; first {which}: "
        f"{first['label']}, which looks like {first['suggested']}. Look at them: "
        "report.data.suspects of the task, and pictures on its page."
    )
    return {"kind": "suspects", "holds": count > SUSPECTS * examined, "text": text}


def _build_class_shift_finding(data: DataReport) -> Finding | None:
    shift = data.get("shift")
    # Images of other classes differ anyway.
    if shift is None or shift["of"] != "known classes" or shift["p"] >= SHIFT:
        return None
    worst = sorted(shift["per_class"], key=lambda one: -one["outside"])[:3]
    # Five of a hundred images lie outside by definition: a tenth is twice that.
    outlying_classes = [
        f"{one['label']} ({one['outside']:.0%} outside)" for one in worst if one["outside"] > 0.1
    ]
    worst_classes = f", most of all {', '.join(outlying_classes)}" if outlying_classes else ""
    by_light = shift["p_light"] < shift["p_features"]
    why = "in brightness or contrast" if by_light else "in what they show"
    cause = "another camera or light" if by_light else "another camera or season, or wrong labels"
    text = (
        f"Images of known classes differ from earlier ones {why} (p = {shift['p']:.3f}){worst_classes}: "
        f"{cause}, "
        "perhaps. Look at them; if they are right, the model needs them."
    )
    return {"kind": "shift", "holds": True, "text": text}


def _build_new_classes_taken_for_known_finding(data: DataReport) -> Finding | None:
    # Fewer than three images are no pattern, however small the class.
    confident = [
        one for one in data.get("would_say", []) if one["surely"] >= max(3, TAKEN * one["of"])
    ]
    if not confident:
        return None
    first = confident[0]
    each = [
        f"{one['surely']:,} of {one['of']:,} images of “{one['label']}” for “{one['said']}”"
        for one in confident[:5]
    ]
    more = "" if len(confident) <= 5 else f", and {len(confident) - 5} more classes by others"
    text = (
        f"Version {first['version']}, which does not know these classes yet, takes "
        f"{', '.join(each)}{more}, with a probability of at least {first['least']:.3g}. That is as it "
        f"should be, unless two names mean the same thing."
    )
    return {"kind": "would_say", "holds": False, "text": text}


def _format_duplicate_example(near: Near) -> str:
    first = near["examples"][0]
    return f" ({first['path']} like {first['like']})" if first["path"] and first["like"] else ""


def _format_images_with_verb(count: int) -> str:
    return "1 image is" if count == 1 else f"{count:,} images are"


def _format_image_share(count: int, total: int) -> str:
    share = count / max(1, total)
    # Rounding to 0.0% would say that there are none.
    return "under 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
