"""Decision whether the names of class folders are labels, or only say where files are stored."""

from collections.abc import Mapping, Sequence

from perennial.reading_rules import label_files
from perennial.reading_rules.builder import MOST_NOTES, FileClassesAndPartsBuilder
from perennial.reading_rules.entries import (
    BatchReadingOptions,
    BatchReadingRemedy,
    UnreadableBatchError,
)
from perennial.reading_rules.levels import ClassFolderPath, Known
from perennial.reading_rules.names import (
    CSV_NAME,
    convert_label_to_stripped_nfc,
    is_image_path,
    quote_name,
)
from perennial.reading_rules.sentences import (
    format_count_with_noun,
    format_counts_by_name,
    format_first_names,
)
from perennial.reading_rules.tables import suggest_file_name_pattern
from perennial.reading_rules.words import (
    find_folders_combining_class_and_part,
    get_dataset_part_of_folder,
    is_generic_folder_name,
)


class FolderLabelDecider:
    """Decides if the names of a batch's folders are its class labels, with remedies if they are
    not.
    """

    def __init__(
        self,
        builder: FileClassesAndPartsBuilder,
        remaining: Sequence[int],
        options: BatchReadingOptions,
        levels: ClassFolderPath,
        known: Known,
        tally: Mapping[str, int],
    ) -> None:
        self._builder, self._remaining, self._options = builder, remaining, options
        self._levels, self._known, self._tally = levels, known, tally

    def choose_labels_other_than_folder_names(self) -> dict[str, str]:
        """Return class labels by folder, where they differ from the folder's name.

        Raises UnreadableBatchError if the folders may be mere containers.
        """
        plan, tally = self._builder.plan, self._tally
        if self._options.one_class and len(tally) > 1:
            raise UnreadableBatchError(
                f"one_class=true was asked for, and the batch has "
                f"{format_count_with_noun(len(tally), 'class', 'classes')}: {format_counts_by_name(tally)}. Leave the "
                f"option out.",
                "labels",
            )
        containers = sorted(name for name in tally if is_generic_folder_name(name))
        label_files_found = label_files.find_possible_label_files(
            self._builder.names, self._remaining
        )
        batch_label_files = [
            label_file for label_file in label_files_found if not label_file.is_aside
        ]
        # A single folder is unclear if a file may have the labels of its images.
        is_unclear = len(containers) == len(tally) or (len(tally) == 1 and bool(batch_label_files))
        if is_unclear and self._options.layout != "folders":
            if self._options.one_class:
                # There is only one here: several were refused above.
                (name,) = tally
                return {
                    name: convert_label_to_stripped_nfc(self._find_folder_naming_single_class())
                }
            if not self._are_class_folders_known_to_model():
                raise self._build_unclear_labels_error(label_files_found)
        if len(tally) > 1:
            plan.warnings += _build_unlikely_class_folder_warnings(
                containers, bool(self._levels.parts)
            )
        halves = find_folders_combining_class_and_part(tally)
        if halves:
            plan.warnings.append(
                f"The folders {format_first_names(halves, 4)} were taken as classes of their own. If "
                f"they are parts of one class, "
                "send train/<class>/… and test/<class>/…."
            )
        # If a table was passed over, a warning has named it already.
        if batch_label_files and not self._builder.has_passed_table:
            files = "; ".join(map(str, batch_label_files[:3]))
            plan.warnings.append(
                f"Classes were read from folders, and no label file: {files}. To read labels from "
                "a file, name it with -o table=FILE (in a request ?table=FILE)."
            )
        return {}

    def _are_class_folders_known_to_model(self) -> bool:
        """Return True if the model knows all class folders as classes."""
        labels = {convert_label_to_stripped_nfc(name) for name in self._tally}
        if not labels <= set(self._known()):
            return False
        # Stored with the batch, since the model may know other classes when its job reads it again.
        self._levels.decided_by |= labels
        return True

    def _find_folder_naming_single_class(self) -> str:
        """Return the folder that names the batch's single class: the deepest that is not a
        container.
        """
        (name,) = self._tally
        above = [*self._levels.passed, name]
        return next(
            (folder for folder in reversed(above) if not is_generic_folder_name(folder)), name
        )

    def _build_unclear_labels_error(
        self, label_files_found: Sequence[label_files.PossibleLabelFile]
    ) -> UnreadableBatchError:
        tally = self._tally
        images = format_count_with_noun(sum(tally.values()), "image")
        remedies = []
        if len(tally) == 1:
            (name,) = tally
            label = convert_label_to_stripped_nfc(self._find_folder_naming_single_class())
            path = quote_name("/".join([*self._levels.passed, name]))
            issue = (
                f"{images} lie in one folder {path}"
                if images != "1 image"
                else f"1 image lies in the folder {path}"
            )
            remedies = [
                BatchReadingRemedy(
                    "one_class", "true", f"Read all {images} as one class {quote_name(label)}"
                )
            ]
            alternative = (
                f", or with -o layout=folders to call it {quote_name(name)}"
                if label != name
                else ""
            )
            option_text = (
                "If they are all of one class, say so with -o one_class=true (in a request "
                "?one_class=true), which "
                f"calls it {quote_name(label)}{alternative}."
            )
        else:
            issue = (
                f"{images} lie in folders whose names say where files lie, not what is in them "
                f"({format_counts_by_name(tally)})"
            )
            remedies = [
                BatchReadingRemedy(
                    "layout",
                    "folders",
                    f"Read {format_first_names(sorted(tally), 3)} as classes",
                )
            ]
            option_text = (
                "If the folders are the classes all the same, say so with -o layout=folders (in a "
                "request ?layout=folders)."
            )
        pattern_remedies, by_names = build_file_name_pattern_remedy(
            self._builder.names, self._remaining
        )
        remedies += pattern_remedies
        label_file_hint = f"; {label_files_found[0]}" if label_files_found else ""
        others_hint = (
            f", and so do {format_count_with_noun(len(label_files_found) - 1, 'other file')}"
            if len(label_files_found) > 1
            else ""
        )
        advice = label_files_found[0].unpack_and_submit_advice if label_files_found else ""
        return UnreadableBatchError(
            f"The batch has no labels that are sure: {issue}{label_file_hint}{others_hint}."
            f"{advice} Put the images of each class in a folder of its name, or send their labels "
            f"as {CSV_NAME} with the first line path,label. {option_text}{by_names}",
            "labels",
            remedies,
        )


def _build_unlikely_class_folder_warnings(containers: Sequence[str], has_parts: bool) -> list[str]:
    """Return warnings about class folders that are named like dataset parts or containers.

    Such names are accepted beside other classes.
    """
    part_folders = (
        [] if has_parts else [name for name in containers if get_dataset_part_of_folder(name)]
    )
    container_folders = [name for name in containers if name not in part_folders]
    warnings = [
        f"The folder {quote_name(folder)} was taken as a class. For a training part and a test part, "
        "send train/<class>/… and test/<class>/…."
        for folder in part_folders
    ][:MOST_NOTES]
    if container_folders:
        phrase = (
            "s {} were taken as classes"
            if len(container_folders) > 1
            else " {} was taken as a class"
        )
        warnings.append(
            f"The folder{phrase.format(format_first_names(container_folders))}, like the folders beside."
        )
    return warnings


def build_file_name_pattern_remedy(
    names: Sequence[str], remaining: Sequence[int]
) -> tuple[list[BatchReadingRemedy], str]:
    """Return a remedy that takes labels from file names, with a sentence, if most names fit a
    pattern.
    """
    pattern = suggest_file_name_pattern(names, [i for i in remaining if is_image_path(names[i])])
    if not pattern:
        return [], ""
    remedy = BatchReadingRemedy(
        "names_pattern", pattern, f"Take the labels from the names of the files, {pattern}"
    )
    return [
        remedy
    ], f" If the names of the files begin with the labels, -o names_pattern='{pattern}' takes them."
