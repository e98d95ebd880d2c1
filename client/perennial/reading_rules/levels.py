"""Level of folders that names the classes: below wrapping folders, parts, and batch folders.

A chain of single folders is a wrapping. If two levels both branch, the upper one is passed if its
folders are parts, dates or numbered alike. Otherwise the classes that the model knows decide, or
the sender is asked.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from perennial.reading_rules import parts as part_rules
from perennial.reading_rules.builder import MOST_NOTES
from perennial.reading_rules.entries import BatchReadingRemedy, UnreadableBatchError
from perennial.reading_rules.names import convert_label_to_stripped_nfc, quote_name
from perennial.reading_rules.sentences import (
    format_count_with_noun,
    format_counts_by_name,
    format_first_names,
)
from perennial.reading_rules.words import (
    are_dated_or_numbered_folder_names,
    get_dataset_part_of_folder,
    is_date_folder_name,
    is_generic_folder_name,
)

Known = Callable[[], Collection[str]]
"""Function that returns the labels known to the model, called only if they may decide."""
Rows = list[tuple[tuple[str, ...], int]]
"""Folders as their names from some level on, each with its number of images, above 0."""


_DAY_OR_MONTH = re.compile(r"0[1-9]|[12]\d|3[01]")


class FolderClassAndPart(NamedTuple):
    """Place of a folder's images in a batch: the class folder and the part.

    Attributes:
        folder: folder that names their class.
        where: its path below wrapping folders.
        part: their part; "" without parts.
    """

    folder: str
    where: str
    part: str


class NoClassReason(NamedTuple):
    """Reason why the images of a folder have no class, as the end of a sentence.

    `top` is the folder beside parts, if any.
    """

    reason: str
    top: str = ""


OUTSIDE = NoClassReason("outside any class folder")


@dataclass
class ClassFolderPath:
    """Path of folder levels from the top of a batch to the class folders.

    Attributes:
        parts: top folder → its part.
        passed: wrapping folders, from the top.
        decided_by: labels known to the model that decided.
        notes, warnings: sentences.
        steps: functions that walk one step down.
    """

    parts: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    decided_by: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: list[Callable[["FolderPathWalk"], NoClassReason | None]] = field(default_factory=list)

    def find_folder_class_and_part(self, folder: str) -> FolderClassAndPart | NoClassReason:
        """Return the class folder and part of the images in a folder, or the reason why they have
        no class.
        """
        way = FolderPathWalk(folder.split("/"))
        for step in self.steps:
            wrong = step(way)
            if wrong is not None:
                return wrong
        if way.at == len(way.names):
            return OUTSIDE
        name = way.names[way.at]
        return FolderClassAndPart(name, f"{way.top}/{name}" if way.top else name, way.part)


@dataclass
class FolderPathWalk:
    """Position while walking down the path of a folder to its class folder.

    Attributes:
        names: names of the folders in the path.
        at: number of folders passed.
        top: folder of the part.
        part: the part.
    """

    names: list[str]
    at: int = 0
    top: str = ""
    part: str = ""

    def try_descend_into_folder(self, name: str | None) -> NoClassReason | None:
        """Go down one folder of the path, or into the folder `name`; return the reason if that is
        impossible.
        """
        if self.at >= len(self.names) or (name is not None and self.names[self.at] != name):
            return OUTSIDE
        self.at += 1
        return None


def find_path_to_class_folders(
    images: Mapping[str, int],
    level: int | None,
    get_known_labels: Known,
    held_out_alone: bool = False,
) -> ClassFolderPath:
    """Find the level of a batch's folders whose names are the classes.

    Args:
        images: folder → number of images in it; the top itself has none.
        level: the level that the sender has chosen, from 1.
        get_known_labels: returns the classes of the model.
        held_out_alone: True if parts without a training part are possible.

    Raises UnreadableBatchError if a part is missing, or if two readings are possible.
    """
    finder = _ClassFolderFinder(ClassFolderPath(), level, get_known_labels, held_out_alone)
    rows: Rows = [(tuple(folder.split("/")), number) for folder, number in images.items()]
    finder.record_steps_to_class_folders(rows)
    return finder.levels


class _ClassFolderFinder:
    def __init__(
        self, levels: ClassFolderPath, level: int | None, known: Known, held_out_alone: bool
    ) -> None:
        self.levels = levels
        self._chosen_level, self._known, self._depth = level, known, 1
        self._held_out_alone = held_out_alone
        self._is_done = self._in_dates = False

    def record_steps_to_class_folders(self, rows: Rows) -> None:
        rows = self._skip_wrapper_folders(rows, may_have_parts=True)
        parts = (
            {}
            if self._is_done
            else part_rules.find_dataset_parts_of_top_folders(
                (names for names, _ in rows), self._held_out_alone
            )
        )
        if parts:
            rows = self._skip_wrapper_folders(
                self._enter_dataset_part_folders(rows, parts), may_have_parts=False
            )
        while not self._is_done and rows:
            rows = self._choose_top_folders_as_classes_or_descend(rows)

    def _skip_wrapper_folders(self, rows: Rows, may_have_parts: bool) -> Rows:
        """Skip a chain of single folders that only wrap the others.

        Images beside a class folder do not end the chain if a container holds both.
        """
        while rows and not self._is_done:
            tops = {names[0] for names, _ in rows}
            subs = {names[1] for names, _ in rows if len(names) > 1}
            if len(tops) > 1 or not subs:
                break
            (top,) = tops
            has_direct_images = any(len(names) == 1 for names, _ in rows)
            below = _strip_top_folder(rows)
            has_parts = may_have_parts and _are_top_folders_dataset_parts(below)
            if (
                has_direct_images
                and not has_parts
                and not (is_generic_folder_name(top) and len(subs) > 1)
            ):
                break
            # A lone `train` or `test` is the part itself, which `parts_among` reads.
            if may_have_parts and get_dataset_part_of_folder(top) and not has_parts:
                break
            if (
                not may_have_parts
                and not is_generic_folder_name(top)
                and not _has_sibling_folders_above_images(below)
            ):
                break  # after a part or a date, class folders must follow
            # A single folder may be the one class in a batch for a model that knows it.
            if not is_generic_folder_name(top) and self._find_known_classes_level({top}, subs) == 1:
                self._is_done = True
                break
            # The default binds `top` now; the loop goes on.
            self.levels.steps.append(lambda way, top=top: way.try_descend_into_folder(top))  # type: ignore[misc]
            self.levels.passed.append(top)
            rows = below
        return rows

    def _enter_dataset_part_folders(self, rows: Rows, parts: dict[str, str]) -> Rows:
        """Go down into the folders of dataset parts (train, test), and there through container
        folders.

        Examples are `train/images/<class>` and `seg_train/seg_train`.
        """
        self.levels.parts = parts
        self.levels.notes += [
            part_rules.describe_dataset_part_of_folder(top, part, set(parts.values()))
            for top, part in sorted(parts.items())[:MOST_NOTES]
        ]
        inner: dict[str, list[str]] = {}
        inner_rows: Rows = []
        # A folder that has images in one part is a class in all parts.
        classes = {names[-1] for names, _ in rows if names[0] in parts and len(names) > 1}
        # A single pass, because there may be as many parts as rows.
        rows_of: dict[str, Rows] = {top: [] for top in parts}
        for row in rows:
            if row[0][0] in rows_of:
                rows_of[row[0][0]].append(row)
        for top in parts:
            part_rows = _strip_top_folder(rows_of[top])
            chain = inner[top] = []
            while True:
                subs = {names[0] for names, _ in part_rows}
                if len(subs) != 1 or any(len(names) == 1 for names, _ in part_rows):
                    break
                (sub,) = subs
                if sub in classes or (sub != top and not is_generic_folder_name(sub)):
                    break
                chain.append(sub)
                part_rows = _strip_top_folder(part_rows)
            inner_rows += part_rows

        def descend_into_part_folder(way: FolderPathWalk) -> NoClassReason | None:
            if way.at == len(way.names):
                return OUTSIDE
            top = way.names[way.at]
            if top not in parts:
                reason = (
                    "which has no class folders"
                    if get_dataset_part_of_folder(top)
                    else "which is no part of the batch"
                )
                return NoClassReason(f"in the folder {quote_name(top)}, {reason}", top)
            way.at, way.top, way.part = way.at + 1, top, parts[top]
            return next(
                (wrong for name in inner[top] if (wrong := way.try_descend_into_folder(name))), None
            )

        self.levels.steps.append(descend_into_part_folder)
        return inner_rows

    def _choose_top_folders_as_classes_or_descend(self, rows: Rows) -> Rows:
        """Decide if the top folders are the classes; otherwise go down one level."""
        uppers = _count_images_by_top_folder(rows)
        lowers = _count_images_by_top_folder(_strip_top_folder(rows))
        if self._chosen_level is not None:
            return self._descend_one_level(rows, bool(lowers))
        direct_images = sum(number for names, number in rows if len(names) == 1)
        # Folders that hold most images themselves are classes, whatever else lies in them.
        if not lowers or direct_images > sum(lowers.values()):
            return self._end_search_at_current_level(rows)
        known_level = self._find_known_classes_level(uppers, lowers)
        if known_level == 1:
            return self._end_search_at_current_level(rows)
        if known_level == 2:
            self._depth += 1
            return self._end_search_at_current_level(
                self._add_descent_step_and_strip_top_folder(rows)
            )
        is_dates = all(map(is_date_folder_name, uppers)) or (
            self._in_dates and all(map(_DAY_OR_MONTH.fullmatch, uppers))
        )
        if (is_dates or are_dated_or_numbered_folder_names(uppers)) and not (
            are_dated_or_numbered_folder_names(lowers)
            and not _strip_top_folder(_strip_top_folder(rows))
        ):
            self._in_dates = is_dates
            subject = (
                f"the folders {format_first_names(sorted(uppers), 3)} were"
                if len(uppers) > 1
                else f"the folder {quote_name(min(uppers))} was"
            )
            kind = "dates" if is_dates else "batches"
            self.levels.notes.append(
                f"{subject} taken as {kind}, and the folders in "
                f"{'them' if len(uppers) > 1 else 'it'} as classes"
            )
            return self._skip_wrapper_folders(
                self._add_descent_step_and_strip_top_folder(rows), may_have_parts=False
            )
        if self._decide_if_upper_folders_are_classes(rows, uppers, lowers, direct_images):
            return self._end_search_at_current_level(rows)
        raise self._build_ambiguous_levels_error(uppers, lowers, direct_images)

    def _descend_one_level(self, rows: Rows, is_deeper: bool) -> Rows:
        if self._chosen_level == self._depth:
            return self._end_search_at_current_level(rows)
        if not is_deeper:
            raise UnreadableBatchError(
                f"classes=level:{self._chosen_level} was asked for, and the folders of the batch "
                f"have {format_count_with_noun(self._depth, 'level')} below those that wrap them."
            )
        self._depth += 1
        rows = self._add_descent_step_and_strip_top_folder(rows)
        return (
            self._end_search_at_current_level(rows)
            if self._chosen_level == self._depth
            else self._skip_wrapper_folders(rows, may_have_parts=False)
        )

    def _decide_if_upper_folders_are_classes(
        self, rows: Rows, uppers: Mapping[str, int], lowers: Mapping[str, int], direct: int
    ) -> bool:
        """Return True if the upper of two folder levels clearly has the classes.

        A note mentions a level below that is not a level of classes.
        """
        pairs = {names[:2] for names, _ in rows if len(names) > 1}
        # With a single folder in each, the lower level divides no class.
        if max(Counter(upper for upper, _ in pairs).values()) == 1 or (direct and len(uppers) > 1):
            return True
        if all(
            is_generic_folder_name(name) or is_date_folder_name(name) for name in lowers
        ) or are_dated_or_numbered_folder_names(lowers):
            parts = [name for name in sorted(lowers) if get_dataset_part_of_folder(name)]
            sentence = (
                f"the folders {format_first_names(sorted(lowers), 3)} belong to the classes of the "
                f"folders that they lie in"
            )
            self.levels.notes.append(sentence)
            if parts:
                self.levels.warnings.append(
                    f"The folders {format_first_names(parts)} lie in class folders, and all their images "
                    f"are learned. To hold some "
                    "out, send train/<class>/… and test/<class>/…."
                )
            return True
        return False

    def _build_ambiguous_levels_error(
        self, uppers: Mapping[str, int], lowers: Mapping[str, int], direct: int
    ) -> UnreadableBatchError:
        at = self._depth
        remainder = (
            f", with {format_count_with_noun(direct, 'image')} outside of them left out"
            if direct
            else ""
        )
        return UnreadableBatchError(
            f"The folders can be read in two ways: {format_count_with_noun(len(uppers), 'class', 'classes')} "
            f"by the first level of "
            f"folders ({format_counts_by_name(uppers)}), or {format_count_with_noun(len(lowers), 'class', 'classes')} "
            f"by the second ({format_counts_by_name(lowers)}{remainder}). "
            f"Say which with -o classes=level:{at} or -o classes=level:{at + 1} (in a request "
            f"?classes=level:{at}).",
            remedies=[
                BatchReadingRemedy(
                    "classes",
                    f"level:{at}",
                    f"Read {format_first_names(sorted(uppers), 3)} as classes",
                ),
                BatchReadingRemedy(
                    "classes",
                    f"level:{at + 1}",
                    f"Read {format_first_names(sorted(lowers), 3)} as classes",
                ),
            ],
        )

    def _add_descent_step_and_strip_top_folder(self, rows: Rows) -> Rows:
        self.levels.steps.append(lambda way: way.try_descend_into_folder(None))
        return _strip_top_folder(rows)

    def _end_search_at_current_level(self, rows: Rows) -> Rows:
        self._is_done = True
        return rows

    def _find_known_classes_level(self, uppers: Collection[str], lowers: Collection[str]) -> int:
        """Return the folder level, 1 or 2, that the model knows as classes; 0 if undecided."""
        known_labels = self._known()
        if not known_labels:
            return 0
        upper_labels, lower_labels = (
            {convert_label_to_stripped_nfc(name) for name in names} for names in (uppers, lowers)
        )
        labels = set(known_labels)
        # That all folders are known is better evidence than that some are, so it is tried first.
        for is_level in (labels.issuperset, lambda names: not labels.isdisjoint(names)):
            first, second = is_level(upper_labels), is_level(lower_labels)
            if first != second:
                self.levels.decided_by |= labels & (upper_labels | lower_labels)
                return 1 if first else 2
        return 0


def _are_top_folders_dataset_parts(rows: Rows) -> bool:
    """Return True if the top folders are dataset parts such as train and test.

    They are if one is for training and has class folders, or if all are named like parts and some
    have class folders.
    """
    folders = [names for names, _ in rows]
    return part_rules.has_training_class_folders(folders) or (
        all(get_dataset_part_of_folder(names[0]) for names in folders)
        and any(len(names) > 1 for names in folders)
    )


def _has_sibling_folders_above_images(rows: Rows) -> bool:
    """Return True if a level of several folders precedes the first image, counted from the top."""
    while rows:
        if len({names[0] for names, _ in rows}) > 1:
            return True
        if any(len(names) == 1 for names, _ in rows):
            return False
        rows = _strip_top_folder(rows)
    return False


def _strip_top_folder(rows: Rows) -> Rows:
    return [(names[1:], number) for names, number in rows if len(names) > 1]


def _count_images_by_top_folder(rows: Rows) -> Counter[str]:
    """Count images by the first name of their path."""
    totals: Counter[str] = Counter()
    for names, number in rows:
        totals[names[0]] += number
    return totals
