"""Classes by folders: the class folder of each file, and the files that are left out."""

from collections import Counter
from collections.abc import Iterable, Sequence

from perennial.reading_rules import foreign, label_files, parts
from perennial.reading_rules.builder import MOST_NOTES, FileClassesAndPartsBuilder
from perennial.reading_rules.choice import FolderLabelDecider, build_file_name_pattern_remedy
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.levels import (
    OUTSIDE,
    FolderClassAndPart,
    Known,
    NoClassReason,
    find_path_to_class_folders,
)
from perennial.reading_rules.names import (
    CSV_NAME,
    convert_label_to_stripped_nfc,
    get_parent_folder,
    is_clearly_no_image,
    is_image_path,
    quote_name,
)
from perennial.reading_rules.sentences import format_count_with_noun

NO_IMAGE = "not an image, by its name"


def assign_folder_classes(
    builder: FileClassesAndPartsBuilder,
    remaining: Sequence[int],
    options: BatchReadingOptions,
    get_known_labels: Known,
) -> None:
    """Assign each file the class and part that its folder names, or leave it out.

    `get_known_labels` returns the labels that the model knows.

    Raises UnreadableBatchError if no image is in a class folder, or if the folders can be read in several
    ways.
    """
    names, plan = builder.names, builder.plan
    images = count_images_by_folder(names, remaining)
    if not images:
        raise _build_no_class_folders_error(builder, remaining)
    levels = find_path_to_class_folders(
        images, options.class_level, get_known_labels, options.held_out_alone
    )
    places = {folder: levels.find_folder_class_and_part(folder) for folder in images}
    images_by_class: Counter[str] = Counter()
    for folder, class_or_reason in places.items():
        if isinstance(class_or_reason, FolderClassAndPart):
            images_by_class[class_or_reason.folder] += images[folder]
    if not images_by_class:
        raise _build_no_class_folders_error(builder, remaining)
    chosen = FolderLabelDecider(
        builder, remaining, options, levels, get_known_labels, images_by_class
    ).choose_labels_other_than_folder_names()
    plan.kind = "split" if levels.parts else "folders"
    plan.has_parts = bool(levels.parts)
    plan.decided_by = sorted(levels.decided_by)
    plan.notes += levels.notes
    kinds = set(levels.parts.values())
    held_out = {part: parts.is_held_out_part(part, kinds) for part in kinds}
    left_out = _LeftOutFileCounts()
    is_empty: dict[str, bool] = {}  # folder of a class → whether it has no images so far
    for index in remaining:
        name = names[index]
        folder = get_parent_folder(name)
        # Folders without images, such as one of notes, were not counted among `images`.
        if folder and folder not in places:
            places[folder] = levels.find_folder_class_and_part(folder)
        class_or_reason = places[folder] if folder else OUTSIDE
        if not isinstance(class_or_reason, FolderClassAndPart):
            builder.leave_file_out(
                index, left_out.record_left_out_file_and_get_reason(name, class_or_reason)
            )
        elif is_clearly_no_image(name):
            is_empty.setdefault(class_or_reason.where, True)
            builder.leave_file_out(index, left_out.record_unsupported_file_and_get_reason(name))
        else:
            is_empty[class_or_reason.where] = False
            builder.assign_file_class(
                index,
                chosen.get(class_or_reason.folder)
                or convert_label_to_stripped_nfc(class_or_reason.folder),
                held_out.get(class_or_reason.part, False),
            )
    empty = [folder for folder in sorted(is_empty) if is_empty[folder]]
    plan.notes += left_out.build_left_out_notes()
    plan.notes += [
        f"the folder {quote_name(folder)} has no images and was ignored"
        for folder in empty[:MOST_NOTES]
    ]
    plan.warnings += levels.warnings
    plan.left_out_warnings += left_out.build_left_out_warnings()


def count_images_by_folder(names: Sequence[str], remaining: Iterable[int]) -> Counter[str]:
    """Count a batch's images in each folder, by their paths.

    If no name is that of an image, files that may be images are counted. Only images determine the
    meaning of folders.
    """
    sure: Counter[str] = Counter()
    perhaps: Counter[str] = Counter()
    is_any = False
    for index in remaining:
        name = names[index]
        folder = get_parent_folder(name)
        if is_image_path(name):
            is_any = True
            if folder:
                sure[folder] += 1
        # Unknown endings count only as long as no file has that of an image.
        elif not is_any and folder and not is_clearly_no_image(name):
            perhaps[folder] += 1
    return sure if is_any else perhaps


def _build_no_class_folders_error(
    builder: FileClassesAndPartsBuilder, remaining: Sequence[int]
) -> UnreadableBatchError:
    """Return the error for a batch without class folders, with what was found and alternatives."""
    names = builder.names
    usual = (
        "No labelled images were found. Send train/<class>/… (and test/<class>/…), <class>/…, or "
        "images with a "
        f"{CSV_NAME} (path,label[,split])."
    )
    label_files_found = label_files.find_possible_label_files(names, remaining)
    remedies, by_names = build_file_name_pattern_remedy(names, remaining)
    # The first kind is enough: its advice is the whole message.
    for kind, files in foreign.group_unsupported_files_by_kind(
        [names[index] for index in remaining]
    ).items():
        return UnreadableBatchError(
            f"{usual} {quote_name(names[remaining[files[0]]])} is {kind.description}. {kind.conversion_advice}."
        )
    if builder.plan.left_out_warnings:
        usual = f"{usual} {' '.join(builder.plan.left_out_warnings)}"
    label_file_hint = (
        f" The file {label_files_found[0]}, and names no images of the "
        f"batch.{label_files_found[0].unpack_and_submit_advice}"
        if label_files_found
        else ""
    )
    return UnreadableBatchError(f"{usual}{label_file_hint}{by_names}", remedies=remedies)


class _LeftOutFileCounts:
    """Counts of a batch's files without a class, by reason."""

    def __init__(self) -> None:
        self._outside = self._loose_images = 0
        self._files_by_top: Counter[str] = Counter()
        self._images_by_top: Counter[str] = Counter()
        self._foreign: Counter[foreign.ConvertibleFileKind] = Counter()
        self._first: dict[foreign.ConvertibleFileKind, str] = {}

    def record_left_out_file_and_get_reason(self, path: str, outside: NoClassReason) -> str:
        """Count a file outside the class folders; return the reason, with a hint where possible."""
        if outside.top:
            self._files_by_top[outside.top] += 1
            self._images_by_top[outside.top] += is_image_path(path)
            return outside.reason
        self._outside += 1
        self._loose_images += is_image_path(path)
        hint = (
            "; it names no images of the batch beside labels"
            if path.lower().endswith(".csv")
            else ""
        )
        return outside.reason + hint

    def record_unsupported_file_and_get_reason(self, path: str) -> str:
        """Count a file that is not an image by its name; return the reason for leaving it out."""
        kind = foreign.find_unsupported_file_kind(path)
        if kind is None:
            return NO_IMAGE
        self._foreign[kind] += 1
        self._first.setdefault(kind, path)
        return f"{kind.description}, by its name"

    def build_left_out_notes(self) -> list[str]:
        """Return sentences for the batch's report about files left out."""
        notes = (
            [f"{format_count_with_noun(self._outside, 'file')} outside any class folder ignored"]
            if self._outside
            else []
        )
        folders = sorted(self._files_by_top.items())[: MOST_NOTES - len(notes)]
        return notes + [
            f"{format_count_with_noun(number, 'file')} in the folder {quote_name(top)} ignored"
            for top, number in folders
        ]

    def build_left_out_warnings(self) -> list[str]:
        """Return warnings about images that are left out of the batch.

        Images beside train and test may be lost because “train” is the name of a class.
        """
        sentences = []
        if self._loose_images:
            sentences.append(
                f"{format_count_with_noun(self._loose_images, 'image')} outside any class folder left out."
            )
        # Plus drops the folders without images.
        tally = +self._images_by_top
        if tally:
            tops = ", ".join(quote_name(top) for top in sorted(tally)[:MOST_NOTES])
            sentences.append(
                f"{format_count_with_noun(sum(tally.values()), 'image')} in {tops} left out: beside a folder "
                f"called train only test and "
                "validation folders are read. If it is a class, put all class folders in one "
                "called train."
            )
        for kind, number in self._foreign.items():
            description = (
                f"is {kind.description}"
                if number == 1
                else f"and {format_count_with_noun(number - 1, 'other file')} are each {kind.description}"
            )
            sentences.append(
                f"{quote_name(self._first[kind])} {description}, and left out. {kind.conversion_advice}."
            )
        return sentences
