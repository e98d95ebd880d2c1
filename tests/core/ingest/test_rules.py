"""Meaning of folders, by the rules that the service and the client share."""

import re
import time
import unicodedata
from collections import Counter
from typing import Any

import pytest

from core.ingest.layout import (
    ArchiveLayout,
    build_archive_layout,
    build_stored_reading_options,
    parse_stored_reading_options,
)
from core.ingest.limits import ArchiveLimits
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.options import parse_reading_option_texts
from perennial.reading_rules.plan import IGNORED, FileClassesAndParts, assign_file_classes_and_parts
from perennial.reading_rules.words import (
    are_dated_or_numbered_folder_names,
    get_dataset_part_of_folder,
    is_date_folder_name,
    is_generic_folder_name,
)

JPG = "jpg"


def list_image_paths(*folders: str, each: int = 2) -> list[str]:
    """List images in folders."""
    return [f"{folder}/{number}.{JPG}" for folder in folders for number in range(each)]


def plan_reading(
    names: list[str], known: tuple[str, ...] = (), **options: Any
) -> FileClassesAndParts:
    return assign_file_classes_and_parts(
        names, BatchReadingOptions(**options), lambda _: b"", lambda: known
    )


def count_images_by_label(plan: FileClassesAndParts) -> dict[str, int]:
    """Return the number of images of each label."""
    return dict(Counter(plan.classes[number] for number in plan.of if number != IGNORED))


CAT_DOG = {"cat": 2, "dog": 2}
READ = {
    # wrapping folders, whatever lies beside
    "plain": (list_image_paths("cat", "dog"), CAT_DOG),
    "a license in the wrapping": ([*list_image_paths("ds/cat", "ds/dog"), "ds/LICENSE"], CAT_DOG),
    "a license beside it": ([*list_image_paths("ds/cat", "ds/dog"), "LICENSE"], CAT_DOG),
    "a read-me, a table and a description": (
        [
            *list_image_paths("ds/cat", "ds/dog"),
            "ds/README.md",
            "ds/labels.txt",
            "data.yaml",
            "ds/train.csv",
        ],
        CAT_DOG,
    ),
    "what file managers leave": (
        [
            *list_image_paths("ds/cat", "ds/dog"),
            *(
                "ds/.DS_Store",
                "Thumbs.db",
                "ds/cat/desktop.ini",
                "__MACOSX/ds/cat/._0.jpg",
                "ds/cat/._1.jpg",
            ),
            *(
                "ds/cat/0.jpg:Zone.Identifier",
                "ds/dog/@eaDir/0.jpg/SYNOFILE_THUMB_M.jpg",
                "ds/dog/Icon␍",
            ),
            *("ds/dog/Icon\r", "README.docx", "ds/cat/README.docx", "ds/cat/deep/.DS_Store"),
        ],
        CAT_DOG,
    ),
    "a chain of single folders": (
        list_image_paths("wrap/dataset/images/hat", "wrap/dataset/images/shoes"),
        {"hat": 2, "shoes": 2},
    ),
    "a chain of other folders": (
        list_image_paths("nest/a/b/photos/hat", "nest/a/b/photos/shoes"),
        {"hat": 2, "shoes": 2},
    ),
    "a loose image beside the wrapping": (
        [*list_image_paths("ds/cat", "ds/dog"), "cover.jpg"],
        CAT_DOG,
    ),
    "a loose image in a container": (
        [*list_image_paths("photos/cat", "photos/dog"), "photos/cover.jpg"],
        CAT_DOG,
    ),
    "annotations beside class folders": (
        [*list_image_paths("cat", "dog"), "Annotations/0.xml", "Annotations/1.xml"],
        CAT_DOG,
    ),
    # words that are classes beside others
    "raw and cooked": (list_image_paths("raw", "cooked"), {"raw": 2, "cooked": 2}),
    "valid and invalid": (list_image_paths("valid", "invalid"), {"valid": 2, "invalid": 2}),
    "test and control": (list_image_paths("test", "control"), {"test": 2, "control": 2}),
    "all and none": (list_image_paths("all", "none"), {"all": 2, "none": 2}),
    "valid and invalid, deeper": (
        list_image_paths("valid/a", "invalid/b"),
        {"valid": 2, "invalid": 2},
    ),
    # depth
    "one folder below each class": (list_image_paths("cat/a", "dog/a/b"), CAT_DOG),
    "one class with a folder in it": ([*list_image_paths("cat"), "cat/sub/3.jpg"], {"cat": 3}),
    "images beside the deeper folders": (
        [*list_image_paths("cat", "dog"), *list_image_paths("dog/a", "dog/b")],
        {"cat": 2, "dog": 6},
    ),
    "WordNet ids with a folder of images": (
        list_image_paths("n01443537/images", "n01629819/images"),
        {"n01443537": 2, "n01629819": 2},
    ),
    "weeks": (
        list_image_paths("week-01/cat", "week-01/dog", "week-02/cat", "week-02/dog"),
        {"cat": 4, "dog": 4},
    ),
    "weeks of other classes": (list_image_paths("week-01/cat", "week-02/dog"), CAT_DOG),
    "dates": (
        list_image_paths("2024-05-01/cat", "2024-05-01/dog", "2024-05-02/cat"),
        {"cat": 4, "dog": 2},
    ),
    "years and months": (
        list_image_paths("2023/11/cat", "2023/12/dog", "2024/01/cat"),
        {"cat": 4, "dog": 2},
    ),
    "days within classes": (
        list_image_paths("cat/2023", "cat/2024", "dog/2023", "dog/2024"),
        {"cat": 4, "dog": 4},
    ),
    "containers within classes": (
        list_image_paths("cat/raw", "cat/images", "dog/raw", "dog/images"),
        {"cat": 4, "dog": 4},
    ),
    # hidden
    "a hidden folder": ([*list_image_paths("cat", "dog"), *list_image_paths(".cache")], CAT_DOG),
}


@pytest.mark.parametrize("case", READ)
def test_folders_are_read_as_classes(case: str) -> None:
    names, classes = READ[case]
    plan = plan_reading(names)
    assert count_images_by_label(plan) == classes and not plan.has_parts
    assert plan.ignored == len(names) - sum(classes.values()) == sum(plan.reasons.values())


PARTS = {
    "plain": ("train", "test"),
    "capital": ("Train", "Test"),
    "sets": ("training_set", "test_set"),
    "years": ("train2017", "val2017"),
    "one word": ("trainset", "testset"),
    "images": ("train_images", "test_images"),
    "repeated": ("seg_train/seg_train", "seg_test/seg_test"),
    "wrapped": ("data/archive/train", "data/archive/test"),
    "containers within": ("train/images", "test/images"),
    "validation alone": ("Training", "Validation"),
    "a shared folder within": ("train/pets", "test/pets"),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_are_known_by_their_words(case: str) -> None:
    train, test = PARTS[case]
    plan = plan_reading(
        [
            *list_image_paths(f"{train}/cat", f"{train}/dog"),
            *list_image_paths(f"{test}/cat", f"{test}/dog", each=1),
        ]
    )
    assert (plan.kind, count_images_by_label(plan)) == ("split", {"cat": 3, "dog": 3})
    assert sum(plan.test) == 2


ONE_CLASS = {
    "one class in a folder of folders": (["train/bird/a/1.jpg", "test/bird/a/2.jpg"], {"bird": 2}),
    "one class, and a loose image beside the parts": (
        ["ds/cover.jpg", "ds/train/cat/1.jpg", "ds/test/cat/2.jpg"],
        {"cat": 2},
    ),
    "a class called like a container, deeper in one part": (
        ["train/raw/1.jpg", "train/cat/1.jpg", "val/raw/more/2.jpg"],
        {"raw": 2, "cat": 1},
    ),
    "weeks of one class": (["week-1/cat/a/1.jpg", "week-2/cat/a/1.jpg"], {"cat": 2}),
}


@pytest.mark.parametrize("case", ONE_CLASS)
def test_a_class_below_parts_is_the_folder_that_follows_them(case: str) -> None:
    names, classes = ONE_CLASS[case]
    assert count_images_by_label(plan_reading(names)) == classes


@pytest.mark.parametrize(
    "names", [["ds/cover.jpg", "ds/test/cat/1.jpg"], ["ds/1.jpg", "ds/val/cat/1.jpg"]]
)
def test_held_out_images_are_not_learned_for_a_loose_image_beside_them(names: list[str]) -> None:
    with pytest.raises(UnreadableBatchError, match="but no training images"):
        plan_reading(names)


STOPPED = {
    "one container": (list_image_paths("images"), "4? ?images lie in one folder “images”"),
    "in the plural and another case": (list_image_paths("JPEGImages"), "one folder “JPEGImages”"),
    "wrapped": (list_image_paths("wrap/My Uploads"), "one folder “wrap/My Uploads”"),
    "containers alone": (
        list_image_paths("images", "raw"),
        r"whose names say where files lie.*“images” 2, “raw” 2",
    ),
    "parts without classes": (list_image_paths("train", "test"), "“test” 2, “train” 2"),
    "a FiftyOne export": (
        [*list_image_paths("data"), "labels.json"],
        "“data”; “labels.json” looks like a FiftyOne export",
    ),
    "a Roboflow export": (
        [*list_image_paths("train"), "train/_classes.csv"],
        "looks like a Roboflow table of classes",
    ),
    "a table beside one folder": (
        [*list_image_paths("shoes-2024"), "things.tsv"],
        "“things.tsv” looks like a table of labels",
    ),
    "YOLO": (
        [
            *list_image_paths("train/images", "valid/images"),
            "data.yaml",
            *(f"train/labels/{i}.txt" for i in range(2)),
        ],
        r"looks like the description of a YOLO data set.*“perennial submit MODEL FOLDER” reads it",
    ),
    "VOC": (
        [*list_image_paths("JPEGImages"), "Annotations/0.xml", "Annotations/1.xml"],
        "one of 2 Pascal VOC annotations",
    ),
    "two levels": (
        list_image_paths("cat/indoor", "cat/outdoor", "dog/indoor", "dog/outdoor"),
        r"two ways: 2 classes by the first level of folders \(“cat” 4, “dog” 4\), or 2 classes by "
        r"the second \(“indoor” 4, “outdoor” 4\).*-o classes=level:1 or -o classes=level:2",
    ),
    "a class or a wrapping": (
        [*list_image_paths("ds/cat", "ds/dog"), "ds/cover.jpg"],
        r"\(“ds” 5\), or 2 classes by the second \(“cat” 2, “dog” 2, with 1 image outside of them "
        r"left out\)",
    ),
    "numbered classes": (
        list_image_paths("class1/a", "class1/b", "class2/a", "class2/b"),
        "two ways",
    ),
    "WordNet ids": (list_image_paths("n01443537/a", "n01443537/b", "n01629819/a"), "two ways"),
    "digits": (list_image_paths("0/a", "0/b", "1/a"), "two ways"),
}


@pytest.mark.parametrize("case", STOPPED)
def test_what_can_be_read_in_several_ways_is_asked_for(case: str) -> None:
    names, said = STOPPED[case]
    with pytest.raises(UnreadableBatchError, match=said) as stopped:
        plan_reading(names)
    assert stopped.value.remedies
    for option, value, _ in stopped.value.remedies:
        assert f"-o {option}={value}" in str(stopped.value)
        assert assign_file_classes_and_parts(
            names, parse_reading_option_texts({option: value}), lambda _: b""
        ).classes  # it settles it


@pytest.mark.parametrize(
    ("names", "options", "classes"),
    [
        (list_image_paths("images"), {"one_class": True}, {"images": 2}),
        (list_image_paths("cat/images"), {"one_class": True}, {"cat": 2}),
        (list_image_paths("cat/images"), {"layout": "folders"}, {"images": 2}),
        (list_image_paths("train", "test"), {"layout": "folders"}, {"train": 2, "test": 2}),
        ([*list_image_paths("data"), "labels.json"], {"layout": "folders"}, {"data": 2}),
        (list_image_paths("cat/in", "cat/out", "dog/in"), {"class_level": 1}, {"cat": 4, "dog": 2}),
        (list_image_paths("cat/in", "cat/out", "dog/in"), {"class_level": 2}, {"in": 4, "out": 2}),
        (
            list_image_paths("train/cat/in", "train/cat/out", "train/dog/in"),
            {"class_level": 2},
            {"in": 4, "out": 2},
        ),
        (
            list_image_paths("week-1/cat", "week-2/cat"),
            {"class_level": 1},
            {"week-1": 2, "week-2": 2},
        ),
    ],
)
def test_an_option_settles_it(
    names: list[str], options: dict[str, Any], classes: dict[str, int]
) -> None:
    assert count_images_by_label(plan_reading(names, **options)) == classes


@pytest.mark.parametrize(
    ("names", "known", "classes"),
    [
        (list_image_paths("cat/in", "cat/out", "dog/in"), ("cat", "bird"), {"cat": 4, "dog": 2}),
        (
            list_image_paths("site-a/cat", "site-a/dog", "site-b/cat"),
            ("cat",),
            {"cat": 4, "dog": 2},
        ),
        (list_image_paths("cat/indoor", "cat/outdoor"), ("cat",), {"cat": 4}),
        (list_image_paths("raw"), ("raw", "cooked"), {"raw": 2}),
    ],
)
def test_the_classes_that_the_model_knows_decide(
    names: list[str], known: tuple[str, ...], classes: dict[str, int]
) -> None:
    plan = plan_reading(names, known)
    assert count_images_by_label(plan) == classes
    assert (
        count_images_by_label(plan_reading(names, tuple(plan.decided_by))) == classes
    )  # what is stored for the job


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"one_class": True},
            "one_class=true was asked for, and the batch has 2 classes: “cat” 2, “dog” 2",
        ),
        (
            {"class_level": 2},
            "classes=level:2 was asked for, and the folders of the batch have 1 level",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UnreadableBatchError, match=said):
        plan_reading(list_image_paths("cat", "dog"), **options)


def test_a_container_among_classes_is_said() -> None:
    said = plan_reading(list_image_paths("raw", "cooked", "test")).warnings
    assert said == [
        "The folder “test” was taken as a class. For a training part and a test part, send "
        "train/<class>/… and test/<class>/….",
        "The folder “raw” was taken as a class, like the folders beside.",
    ]


def test_a_hidden_folder_and_lost_images_are_said() -> None:
    plan = plan_reading(
        [*list_image_paths("cat", "dog"), *list_image_paths("a/.thumbs", each=1), "cover.jpg"]
    )
    assert plan.left_out_warnings == [
        "1 image in the hidden folder “a/.thumbs” left out.",
        "1 image outside any class folder left out.",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cat/IMG_1.DNG", "is a camera's raw file, and left out. Convert it first: magick mogrify"),
        ("cat/film.mp4", "is a video.*ffmpeg -i FILE"),
        ("cat/scan.pdf", "is a PDF.*pdftoppm"),
    ],
)
def test_a_file_that_can_be_converted_is_left_out_with_the_lines_that_do_it(
    name: str, said: str
) -> None:
    (warning,) = plan_reading([*list_image_paths("cat", "dog"), name]).left_out_warnings
    assert re.search(said, warning)


@pytest.mark.parametrize(
    ("table", "labels", "said"),
    [
        (
            "image,a,b\ncat/0.jpg,x,y\ncat/1.jpg,y,x\ndog/0.jpg,x,x\n",
            {"cat": 2, "dog": 2},
            "-o label=",
        ),
        ("image,label\ncat/0.jpg,a\n", {"cat": 2, "dog": 2}, "has labels for 1 of 4 images"),
        (
            "image,label\ncat/0.jpg,a\ncat/1.jpg,b\ndog/0.jpg,b\ndog/1.jpg,a\n",
            {"a": 2, "b": 2},
            "^$",
        ),
        ("width,height\n8,8\n", {"cat": 2, "dog": 2}, "“list.csv” looks like a table of labels"),
    ],
)
def test_beside_class_folders_a_table_decides_where_it_labels_most_images(
    table: str, labels: dict[str, int], said: str
) -> None:
    plan = assign_file_classes_and_parts(
        [*list_image_paths("cat", "dog"), "list.csv"],
        BatchReadingOptions(),
        lambda _: table.encode(),
    )
    assert count_images_by_label(plan) == labels
    assert re.search(said, " ".join(plan.warnings))


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_labels_are_composed_and_keep_their_case(form: str) -> None:
    names = [unicodedata.normalize(form, name) for name in list_image_paths("Käse", "Brot")]  # type: ignore[arg-type]
    assert count_images_by_label(plan_reading(names)) == {"Käse": 2, "Brot": 2}


CONTAINERS = """
images img IMGS image data Dataset upload uploads photos pictures files train training train_images training_set
trainset test test_set testing val valid validation JPEGImages Annotations raw all images_002 Raw-Images
"""


def test_words_are_known_in_any_case_with_counts_and_suffixes() -> None:
    assert [word for word in CONTAINERS.split() if not is_generic_folder_name(word)] == []
    assert all(
        map(is_generic_folder_name, ["New photos (2)", "my uploads", "images of the test set"])
    )
    assert not any(
        map(
            is_generic_folder_name,
            ["cooked", "invalid", "trains", "cat images", "7", "été", "imagery"],
        )
    )
    assert (
        get_dataset_part_of_folder("train station") is None
        and get_dataset_part_of_folder("Train-Set 2") == "training"
    )
    assert all(
        map(
            is_date_folder_name,
            ["2024", "2024-05-17", "20240517", "17.05.2024", "May 2024", "2024-W05"],
        )
    )
    assert not any(map(is_date_folder_name, ["5", "20245", "may", "class 2024"]))
    assert are_dated_or_numbered_folder_names(
        ["week-01", "week-02"]
    ) and are_dated_or_numbered_folder_names(["Batch 1", "batch 2"])
    assert (
        not are_dated_or_numbered_folder_names(["a1", "a2"])
        and not are_dated_or_numbered_folder_names(["week-01"])
        and not are_dated_or_numbered_folder_names(["cat1", "dog2"])
    )


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ([*list_image_paths("images"), "labels.json"], {"images": 2}),
        (list_image_paths("cat/in", "cat/out", "dog/in"), {"cat": 4, "dog": 2}),
        (list_image_paths("train", "test"), {"train": 2, "test": 2}),
    ],
)
def test_a_batch_that_was_accepted_before_is_read_by_its_job_as_its_submit_said(
    names: list[str], classes: dict[str, int]
) -> None:
    layout = build_archive_layout(
        names,
        ArchiveLimits(),
        lambda _: b"{}",
        parse_stored_reading_options(None, list(classes), {}),
    )
    assert layout.count_images_by_class_and_part()[0] == classes


def test_a_stored_reading_is_the_one_that_was_asked_for() -> None:
    options = BatchReadingOptions(
        "folders", True, 2, 0.5, "file", "kind", "list.csv", "{label}_{number}", "gbk"
    )
    reading = parse_stored_reading_options(
        build_stored_reading_options(options, ArchiveLayout("folders", decided_by=["cat"])),
        ["dog"],
        {},
    )
    assert (reading.options, list(reading.known_classes()), reading.is_old) == (
        options,
        ["cat"],
        False,
    )
    assert build_stored_reading_options(BatchReadingOptions(), ArchiveLayout("folders")) == {
        "options": {},
        "known": [],
    }


def test_a_folder_alone_is_not_said_to_have_others_beside() -> None:
    assert plan_reading(list_image_paths("images"), layout="folders").warnings == []


@pytest.mark.parametrize(
    "name", ["ann.json", "gt.json", "train.json", "x_test.json", "via/ann.json"]
)
def test_json_that_may_be_labels_is_asked_about_where_there_is_one_class(name: str) -> None:
    with pytest.raises(UnreadableBatchError, match=f"“{name}” looks like labels"):
        plan_reading([*list_image_paths("birds"), name])


def test_images_in_hidden_folders_alone_are_named() -> None:
    with pytest.raises(
        UnreadableBatchError, match=r"4 images in the hidden folder “\.cache” left out"
    ):
        plan_reading(list_image_paths(".cache/cat", ".cache/dog"))


@pytest.mark.parametrize(
    "names", [("100APPLE", "101APPLE"), ("100CANON", "101_PANA"), ("100MSDCF",)]
)
def test_folders_that_cameras_number_are_no_classes(names: tuple[str, ...]) -> None:
    with pytest.raises(UnreadableBatchError, match="no labels that are sure"):
        plan_reading(list_image_paths(*(f"DCIM/{name}" for name in names)))


def test_parts_in_the_names_of_class_folders_are_said() -> None:
    (said,) = plan_reading(
        list_image_paths("cat_train", "cat_test", "dog_train", "dog_test")
    ).warnings
    assert said.startswith(
        "The folders “cat_test”, “cat_train”, “dog_test”, “dog_train” were taken as classes"
    )
    assert plan_reading(list_image_paths("crash_test", "train_station", "owl")).warnings == []


def test_as_many_parts_as_files_cost_no_more_than_their_files() -> None:
    names = [f"train{number}/cat/{number}.jpg" for number in range(20_000)]
    began = time.process_time()
    plan = plan_reading(names)
    assert count_images_by_label(plan) == {"cat": 20_000} and len(plan.notes) <= 20
    assert time.process_time() - began < 10
