"""ImageNet folders named by WordNet ids, with `LOC_synset_mapping.txt` or `words.txt`."""

import re
from collections import Counter
from collections.abc import Sequence

from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables import cells
from perennial.reading_rules.tables.found import LabelTableCandidate, LabelTableEntryCollector
from perennial.reading_rules.tables.values import find_dataset_part_in_folders

TITLE = "ImageNet folders"
FILES = ("loc_synset_mapping.txt", "words.txt", "synset_words.txt")
VALIDATION = "val_annotations.txt"
_ID = re.compile(r"n\d{8}")
_LINE = re.compile(r"(n\d{8})[\t ]+(.+)")
_MOST_NAMES = 200_000


def has_synset_folders(names: Sequence[str], remaining: Sequence[int]) -> bool:
    """Return True if an image is in a folder named by a WordNet id, as in ImageNet."""
    return any(_ID.fullmatch(folder) for i in remaining for folder in names[i].split("/")[:-1])


def label_images_by_synset_table(
    file: LabelTableCandidate,
    names: Sequence[str],
    remaining: Sequence[int],
    rows: LabelTableEntryCollector,
) -> bool:
    """Label images in WordNet folders by a table that maps the ids to names.

    Returns False if the file is not a mapping.
    """
    labels = _read_synset_names(file)
    if not labels:
        return False
    rows.set_current_table_file(file)
    for i in remaining:
        ids = [
            (at, folder)
            for at, folder in enumerate(names[i].split("/")[:-1])
            if _ID.fullmatch(folder)
        ]
        if ids:
            # The innermost id is the folder of the class.
            at, wnid = ids[-1]
            if wnid in labels:
                rows.add_label_entry(
                    names[i],
                    labels[wnid],
                    f"the folder of {quote_name(names[i])}",
                    find_dataset_part_in_folders(names[i], at),
                )
            else:
                rows.record_bad_entry(
                    names[i], f"lies in the folder {wnid}, which {file.name} does not name"
                )
    return True


def add_labels_of_tiny_imagenet_validation(
    file: LabelTableCandidate, mapping: LabelTableCandidate, rows: LabelTableEntryCollector
) -> None:
    """Add the labels of Tiny ImageNet's validation images, from a file with an image and an id per
    line.
    """
    labels = _read_synset_names(mapping)
    rows.set_current_table_file(file)
    folder = f"{file.folder}/images/" if file.folder else "images/"
    for line_number, _, values, problem in cells.read_table_rows(file.data, "\t"):
        where = f"line {line_number} of {file.name}"
        if problem or len(values) < 2:
            rows.record_bad_entry(where, problem or "has one cell")
        elif values[1] not in labels:
            rows.record_bad_entry(
                where, f"has the id {quote_name(values[1])}, which {mapping.name} does not name"
            )
        else:
            rows.add_label_entry(folder + values[0], labels[values[1]], where, "validation")


def _read_synset_names(file: LabelTableCandidate) -> dict[str, str]:
    """Return class names by WordNet id: the first of its words; an ambiguous word gets the id."""
    words: dict[str, str] = {}
    for mapping_line in cells.open_bytes_as_text(file.data):
        match = _LINE.fullmatch(mapping_line.strip())
        # Bounds memory; WordNet has less than half as many groups of nouns.
        if match and len(words) < _MOST_NAMES:
            words[match[1]] = match[2].split(",")[0].strip()
    counts = Counter(words.values())
    return {wnid: name if counts[name] == 1 else f"{name} ({wnid})" for wnid, name in words.items()}
