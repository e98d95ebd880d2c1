"""Agreement of client and service on names, labels and parts."""

import io
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sources import make_noise_png, write_file

from core.errors import PerennialError
from core.ingest import names as service_names
from core.ingest.layout import IGNORED, ArchiveLayout, BatchReadingSettings, build_archive_layout
from core.ingest.limits import ArchiveLimits
from perennial.pack import PackError, labels, names, open_batch
from perennial.reading_rules.names import CSV_NAME, normalise_to_nfc
from perennial.reading_rules.options import (
    convert_reading_option_values_to_texts,
    parse_reading_option_texts,
)
from perennial.steps import replace_options_by_query_parameters

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
characters = "abé /\\.:\t\n\u200d\u202e\ufe0f\u00ad\u0915\u094d\u2800☂"
odd = st.sampled_from([*characters, "e\u0301", "..", "\udc80", "👩\u200d💻", "☂\ufe0f"])
texts = st.one_of(
    st.lists(odd, max_size=8).map("".join),
    st.text(max_size=6),
    st.text("ab", min_size=95, max_size=105),
)


def normalise_label(text: str) -> str | None:
    try:
        return service_names.check_and_normalise_class_label(text, "a test")
    except PerennialError:
        return None


@QUICK
@given(texts)
def test_labels_are_normal_and_refused_as_at_the_service(text: str) -> None:
    label = labels.convert_label_to_stripped_nfc(text)
    assert normalise_label(text) == (None if labels.explain_invalid_label(label) else label)


@QUICK
@given(
    st.one_of(
        texts, st.lists(st.sampled_from(["a", "..", ".", "b.png"]), max_size=40).map("/".join)
    )
)
@example("a" * 1100)
def test_a_path_that_the_client_lets_pass_the_service_accepts(path: str) -> None:
    if not names.explain_invalid_path(path):
        assert service_names.check_and_normalise_entry_path(path) is not None


PART_WORDS = [
    "train",
    "Train",
    "test",
    "val",
    "training_set",
    "test_set",
    "train2017",
    "seg_train",
    "seg_test",
]
CONTAINERS = ["images", "data", "raw", "JPEGImages", "uploads"]
CLASSES = [
    "cat",
    "dog",
    "train ",
    "K\u00e4se",
    "Ka\u0308se",
    "a b",
    "0",
    "1",
    "week-01",
    "week-02",
    "2024-05-01",
    "2024",
]
JUNK = [
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "._1.png",
    "1.png:Zone.Identifier",
    "Icon\r",
    "README.docx",
]
OTHERS = [
    "LICENSE",
    "notes.txt",
    "labels.json",
    "data.yaml",
    "_classes.csv",
    "1.xml",
    "clip.mp4",
    "raw.DNG",
    "3",
]
folders = st.sampled_from([*PART_WORDS, *CONTAINERS, *CLASSES, "@eaDir", ".hidden", "__MACOSX"])
files = st.sampled_from(
    ["1.png", "2.jpg", "4.PNG", "1.png", "\u00e9.jpg", "e\u0301.jpg", *JUNK, *OTHERS]
)
paths = st.builds(
    lambda above, name: "/".join([*above, name]), st.lists(folders, max_size=4), files
)
wrapped = st.builds(
    lambda top, found: {f"{top}/{path}" for path in found},
    folders,
    st.sets(paths, min_size=1, max_size=9),
)
trees = st.one_of(st.sets(paths, min_size=1, max_size=12), wrapped)
choices = st.sampled_from(
    [
        {},
        {},
        {},
        {"layout": "folders"},
        {"one_class": True},
        {"classes": "level:1"},
        {"classes": "level:2"},
    ]
)
EXAMPLES: list[tuple[set[str], dict[str, object]]] = [
    ({"data/train/cat/1.png", "data/test/cat/1.png"}, {}),
    ({"train/cat/1.png", "val/cat/2.png", "test/cat/1.png"}, {}),
    ({"cat/a/1.png", "cat/b/1.png"}, {}),
    ({"train/1.png", "val/cat/1.png", "dog/a/1.png"}, {}),
    ({"cat/indoor/1.png", "cat/outdoor/1.png", "dog/indoor/1.png"}, {"classes": "level:2"}),
    ({"cat/1.png", "cat/indoor/1.png", "cat/outdoor/1.png"}, {"classes": "level:2"}),
    ({"images/1.png", "images/labels.json"}, {"one_class": True}),
    ({"train/1.png", "test/1.png"}, {"layout": "folders"}),
    ({"ds/cat/1.png", "ds/dog/1.png", "ds/cover.png", "LICENSE"}, {}),
]


def compare_readings(tree: set[str], chosen: dict[str, object], at: Path) -> None:
    """Check that the client reads a folder as the service reads an archive of it.

    The service must also read the archive that is sent in the same way.
    """
    for path in tree:
        if not any(other.startswith(f"{path}/") for other in tree):
            write_file(at / path, b"image")
    every = sorted(
        {
            service_names.check_and_normalise_entry_path(str(path.relative_to(at))): None
            for path in at.rglob("*")
            if path.is_file()
        }
    )
    reading = BatchReadingSettings(
        parse_reading_option_texts(convert_reading_option_values_to_texts(chosen))
    )
    whole: dict[str, tuple[str, bool]] | str
    try:
        layout = build_archive_layout(every, ArchiveLimits(), lambda _: b"", reading)
        whole = map_labels_by_path(every, layout)
    except PerennialError as error:
        # The service alone sees hidden files: a folder is sent without them.
        whole = re.sub(r" [\d,]+ images? in the hidden folder “[^”]+” left out\.", "", error.detail)
    try:
        batch = open_batch(at, kind="folder", **chosen)
    except PackError as error:
        alone = replace_options_by_query_parameters(str(error).partition(": ")[2])
        assert alone == whole or "there twice" in str(error) or "service would refuse" in str(error)
        return
    if isinstance(whole, str) and "but no training images" in whole:
        return  # only the service knows if the model waits for held-out images alone
    rows = batch._images.rows  # type: ignore[attr-defined]  # what the client believes
    believed = {normalise_to_nfc(row.name): (row.label, row.part == "test") for row in rows}
    assert believed == whole
    with tarfile.open(fileobj=io.BytesIO(b"".join(batch.read_chunks()))) as tar:
        sent = [service_names.check_and_normalise_entry_path(name) for name in tar.getnames()]
        tables = {
            number: tar.extractfile(name)
            for number, name in enumerate(tar.getnames())
            if name == CSV_NAME
        }
        read = {number: file.read() for number, file in tables.items() if file is not None}
    layout = build_archive_layout(sent, ArchiveLimits(), read.__getitem__)
    assert map_labels_by_path(sent, layout) == believed
    assert layout.ignored == 0


def map_labels_by_path(names: list[str], layout: ArchiveLayout) -> dict[str, tuple[str, bool]]:
    """Map each path to (label, whether it is held out)."""
    return {
        name: (layout.classes[number], bool(test))
        for name, number, test in zip(names, layout.of, layout.test, strict=True)
        if number != IGNORED
    }


@pytest.mark.parametrize(("tree", "chosen"), EXAMPLES)
def test_a_folder_is_read_as_the_service_reads_an_archive_of_it(
    tree: set[str], chosen: dict[str, object], tmp_path: Path
) -> None:
    compare_readings(tree, chosen, tmp_path)


@settings(QUICK, max_examples=60)
@given(tree=trees, chosen=choices)
def test_any_folder_is_read_as_the_service_reads_an_archive_of_it(
    tree: set[str], chosen: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    compare_readings(tree, chosen, tmp_path_factory.mktemp("tree"))


@pytest.mark.campaign
@settings(QUICK, max_examples=2000)
@given(tree=trees, chosen=choices)
def test_two_thousand_folders_are_read_as_the_service_reads_archives_of_them(
    tree: set[str], chosen: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    compare_readings(tree, chosen, tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("label", ["", "a" * 101, "cat\u200d", "line\nbreak"])
def test_labels_that_would_be_refused_are_told_with_an_example(label: str, tmp_path: Path) -> None:
    with pytest.raises(
        PackError, match=r"The service would refuse 1 label of a mapping: .* \(of “0000000"
    ):
        open_batch({label: [make_noise_png("a")], "dog": [make_noise_png("b")]})


def test_the_first_of_many_bad_labels_are_told() -> None:
    with pytest.raises(PackError, match=r"would refuse 7 labels .*; and 2 more\. Rename them"):
        open_batch({f"cat {number}\u202e": [make_noise_png("a")] for number in range(7)})


def test_a_class_of_which_nothing_would_be_learned_is_told() -> None:
    with pytest.raises(PackError, match=r"the class “dog” has test images but none to learn"):
        open_batch({"train": {"cat": [b"1"]}, "test": {"dog": [b"2"]}})
