"""Label tables: every kind as its tool writes it, and what becomes of entries that cannot
be read.
"""

import io
import json
import re
import tarfile
from collections import Counter
from typing import Any

import pytest
from hostile_corpus import build_tar, build_zip, draw_png
from tables_samples import FILES, IMAGES, LABELS, SAMPLES

from core.errors import ArchiveHostile, LabelsInvalid
from core.ingest.layout import BatchReadingSettings, build_archive_layout
from core.ingest.limits import ArchiveLimits
from perennial.reading_rules.entries import (
    BatchReadingOptions,
    LeftOutLabelTableEntry,
    UnreadableBatchError,
)
from perennial.reading_rules.plan import IGNORED, FileClassesAndParts, assign_file_classes_and_parts
from perennial.reading_rules.tables import find_label_table, suggest_file_name_pattern
from perennial.reading_rules.tables.columns import NotALabelTable, choose_table_columns
from perennial.reading_rules.tables.file_names import parse_file_name_pattern
from perennial.reading_rules.tables.found import LabelTableCandidate
from perennial.reading_rules.tables.images import AMBIGUOUS, MISSING, ImageNameIndex
from perennial.reading_rules.tables.records import open_table_records

Files = dict[str, str | bytes]


def plan_reading(files: Files, **options: Any) -> FileClassesAndParts:
    names = list(files)

    def read_listed_file(number: int) -> bytes:
        content = files[names[number]]
        return content if isinstance(content, bytes) else content.encode()

    return assign_file_classes_and_parts(names, BatchReadingOptions(**options), read_listed_file)


def find_labels(plan: FileClassesAndParts, files: Files) -> dict[str, str]:
    return {name: plan.classes[n] for name, n in zip(files, plan.of, strict=True) if n != IGNORED}


def add_label_table(rows: str, first: str = "path,label") -> Files:
    return {**FILES, "labels.csv": f"{first}\n{rows}"}


@pytest.mark.parametrize("source", SAMPLES)
def test_each_tool_is_read(source: str) -> None:
    files, labels, options = SAMPLES[source]
    plan = plan_reading(files, **options)
    assert find_labels(plan, files) == labels
    assert not plan.bad_entries


@pytest.mark.parametrize("source", ["Roboflow", "Edge Impulse"])
def test_parts_of_a_tool_are_those_of_the_batch(source: str) -> None:
    plan = plan_reading(SAMPLES[source][0])
    assert plan.has_parts and sum(plan.test) == 2


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("source", ["Label Studio JSON", "FiftyOne", "Kaggle"])
def test_every_archive_is_read_alike(look: Any, source: str, kind: str) -> None:
    files = {
        name: (content.encode() if isinstance(content, str) else content) or draw_png(number)
        for number, (name, content) in enumerate(SAMPLES[source][0].items())
    }
    if kind == "tar.gz":
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as packed:
            for name, content in files.items():
                about = tarfile.TarInfo(name)
                about.size = len(content)
                packed.addfile(about, io.BytesIO(content))
        data = out.getvalue()
    else:
        data = build_zip(files) if kind == "zip" else build_tar(files)
    assert look(data).classes == dict(Counter(SAMPLES[source][1].values()))


@pytest.mark.parametrize(
    ("name", "folder", "found"),
    [
        ("a/1.jpg", "", "a/1.jpg"),
        ("./a/1.jpg", "", "a/1.jpg"),
        ("1.jpg", "a", "a/1.jpg"),
        ("a/1.jpg", "meta", "a/1.jpg"),
        ("../a/1.jpg", "meta", "a/1.jpg"),
        ("../../../a/1.jpg", "meta", "a/1.jpg"),
        ("a\\1.jpg", "", "a/1.jpg"),
        ("C:\\Users\\me\\a\\1.jpg", "", "a/1.jpg"),
        ("/data/upload/4/2.jpg", "", "b/2.jpg"),
        ("/data/upload/4/3ac2082b-2.jpg", "", "b/2.jpg"),
        ("/data/local-files/?d=x/b/2.jpg", "", "b/2.jpg"),
        ("https://host/x/2.jpg?size=1#top", "", "b/2.jpg"),
        ("s3://bucket/b/a%20b.jpg", "", "b/a b.jpg"),
        ("2.jpg", "", "b/2.jpg"),
        ("2", "", "b/2.jpg"),
        ("w/b/2.jpg", "", "b/2.jpg"),
        ("Käfer.jpg", "", "b/Käfer.jpg"),
        ("1.jpg", "", AMBIGUOUS),
        ("1", "", AMBIGUOUS),
        ("c/2.jpg", "", MISSING),
        ("9.jpg", "", MISSING),
        ("..", "", MISSING),
        ("/", "", MISSING),
        ("s3://", "", MISSING),
    ],
)
def test_an_image_is_found_by_the_ways_in_which_tables_name_it(
    name: str, folder: str, found: str | int
) -> None:
    names = ["a/1.jpg", "b/1.jpg", "b/2.jpg", "b/a b.jpg", "b/Käfer.jpg"]
    number = ImageNameIndex(names, range(len(names))).find_image_number(name, folder)
    assert (names[number] if number >= 0 else number) == found


def test_a_table_called_train_means_the_images_of_the_training_part() -> None:
    files: Files = {
        "train/1.jpg": "",
        "test/1.jpg": "",
        "train/2.jpg": "",
        "train.csv": "id,label\n1,cat\n2,owl\n",
    }
    assert find_labels(plan_reading(files), files) == {"train/1.jpg": "cat", "train/2.jpg": "owl"}


@pytest.mark.parametrize(
    ("value", "label"),
    [(" cat ", "cat"), ("1.0", "1"), ("1", "1"), ("0.5", "0.5"), ("=1+1", "=1+1"), ("A\u0308", "Ä"), ("-2", "-2"),
     ("nan", None), ("NaN", None), ("", None), ("-1", None), ("-1.0", None)],
)  # fmt: skip
def test_a_label_is_trimmed_and_a_missing_one_is_listed(value: str, label: str | None) -> None:
    files = add_label_table(f'images/cat0.jpg,x\nimages/owl1.jpg,"{value}"\n')
    plan = plan_reading(files, max_bad=0)
    assert find_labels(plan, files).get("images/owl1.jpg") == label
    said = [LeftOutLabelTableEntry("line 3 of labels.csv", "“images/owl1.jpg” has no label")]
    assert plan.bad_entries == ([] if label else said)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"file": "none.jpg", "label": "cat"}, "names “none.jpg”, which is not in the batch"),
        ({"file": "owl1.jpg", "label": ["a", "b"]}, "has several labels, “a”, “b”"),
        ({"file": "owl1.jpg", "label": {"a": 1}}, "neither a text nor a number"),
        ({"file": "owl1.jpg", "label": "a\u202eb"}, r"has the character U\+202E"),
        ({"file": "owl1.jpg", "label": "x" * 101}, "longer than 100 characters"),
        ({"file": None, "label": "cat"}, "names no image"),
        ({"file": "x" * 2000, "label": "cat"}, "a name of more than 1024 characters"),
        (
            {"file": "cat0.jpg", "label": "owl"},
            "names “cat0.jpg” with “owl”; entry 1 of t.json says the label “cat”",
        ),
        (17, "is no JSON object"),
    ],
)
def test_a_bad_entry_costs_one_entry(entry: Any, reason: str) -> None:
    good = [{"file": f"{image[7:]}", "label": label} for image, label in LABELS.items()]
    files: Files = {**FILES, "t.json": json.dumps([*good[:7], entry])}
    plan = plan_reading(files, max_bad=0.3)
    assert {bad.where for bad in plan.bad_entries} >= {"entry 8 of t.json"}
    assert any(re.search(reason, bad.reason) for bad in plan.bad_entries)
    assert len(find_labels(plan, files)) == 7 - (len(plan.bad_entries) - 1)


def test_too_many_bad_entries_end_the_batch_with_the_option_that_allows_them() -> None:
    rows = "".join(f"{image},cat\n" for image in IMAGES) + "no1.jpg,cat\nno2.jpg,cat\n"
    with pytest.raises(
        UnreadableBatchError,
        match=r"2 of 10 entries of “labels.csv”.* more than 5 %; .*max_bad=0.2 \(",
    ):
        plan_reading(add_label_table(rows))
    assert len(plan_reading(add_label_table(rows), max_bad=0.2).bad_entries) == 2


def test_one_mistake_ends_no_batch_unless_none_is_allowed() -> None:
    files = add_label_table("images/cat0.jpg,cat\nnone.jpg,cat\n")
    assert len(plan_reading(files).bad_entries) == 1
    with pytest.raises(UnreadableBatchError, match="more than 0 %"):
        plan_reading(files, max_bad=0)


def test_the_report_lists_what_was_left_out(look: Any) -> None:
    found = look(
        build_zip(
            {
                **dict.fromkeys(IMAGES, draw_png(1)),
                "labels.csv": b"path,label\nnone.jpg,a\nimages/cat0.jpg,cat\n",
            }
        )
    )
    assert found.bad_entries_count == 1
    assert found.bad_entries[0] == {
        "where": "line 2 of labels.csv",
        "reason": "names “none.jpg”, which is not in the batch",
    }


@pytest.mark.parametrize(
    ("files", "options", "error"),
    [
        ({"t.csv": "file,class,species\ncat0.jpg,a,x\nowl1.jpg,b,x\ncat2.jpg,a,y\n"}, {},
         "several columns that may be the one of labels: “class”, “species”. .* -o label=class"),
        ({"t.csv": "one,two,label\ncat0.jpg,owl1.jpg,a\ncat2.jpg,owl3.jpg,b\n"}, {},
         "several columns that may be the one of images: “one”, “two”. .* -o image=one"),
        ({"a.csv": "file,label\ncat0.jpg,a\n", "b.csv": "image,class\nowl1.jpg,b\n"}, {},
         "“a.csv”, “b.csv” all look like label tables. .* -o table=a.csv"),
        ({"t.csv": "file,label\ncat0.jpg,a\n"}, {"label_column": "kind"},
         "No table has a column “kind” that fits -o label=kind: “t.csv” has “file”, “label”"),
        ({"t.csv": "file,label\ncat0.jpg,a\n"}, {"table": "u.csv"}, "There is no file “u.csv”"),
        ({"t.csv": "file,note\n" + "".join(f"{i},word "
            f"{n}\n" for n, i in enumerate(IMAGES * 3))}, {},
         "differs in each row"),
        ({"labels.csv": "foo,bar\n1,2\n"}, {}, "“labels.csv” has the columns “foo”, “bar”; its "
            "first entry is “1,2”"),
        ({"labels.csv": "\x89PNG\r\n"}, {}, "“labels.csv” is no table: it begins with"),
    ],
)  # fmt: skip
def test_what_is_unclear_is_asked_for_by_the_option_that_settles_it(
    files: Files, options: Any, error: str
) -> None:
    with pytest.raises(UnreadableBatchError, match=error):
        plan_reading({**FILES, **files}, **options)


def test_a_table_that_says_something_else_is_asked_about_where_no_folders_are_classes() -> None:
    files: Files = {
        "cat/1.jpg": "",
        "owl/2.jpg": "",
        "sizes.csv": "file,width\n1.jpg,10\n2.jpg,20\n",
    }
    found = plan_reading(files)
    assert found.classes == ["cat", "owl"]
    assert [text.partition(":")[0] for text in found.warnings] == ["Labels were read from folders"]
    loose: Files = {"images/1.jpg": "", "raw/2.jpg": "", "sizes.csv": files["sizes.csv"]}
    with pytest.raises(
        UnreadableBatchError, match="-o label=width; to take folders as classes, -o layout=folders"
    ):
        plan_reading(loose)


@pytest.mark.parametrize("column", ["width", "eyes"])
def test_a_table_beside_class_folders_that_says_something_else_is_said_once(column: str) -> None:
    files: Files = {
        "cat/1.jpg": "",
        "owl/2.jpg": "",
        "more.csv": f"file,{column}\n1.jpg,10\n2.jpg,20\n",
    }
    plan = plan_reading(files)
    assert plan.classes == ["cat", "owl"]
    (said,) = plan.warnings
    assert said.endswith(f"-o label={column}; to take folders as classes, -o layout=folders.")
    assert plan_reading(files, label_column=column).classes == ["10", "20"]


def test_a_mapping_of_ids_is_read_where_it_is_named() -> None:
    files: Files = {
        "n01440764/1.jpg": "",
        "n01443537/2.jpg": "",
        "words.txt": "n01440764\ttench, Tinca tinca\n",
    }
    assert plan_reading(files, table="words.txt").classes == ["tench"]


@pytest.mark.parametrize(
    "beside",
    [
        {"classes.csv": "id,name\n0,cat\n1,owl\n"},
        {"sample_submission.csv": "id,label\n1,cat\n2,cat\n"},
        {"data.json": '{"1": {"width": 8}, "2": {"width": 9}}'},
        {"coco.json": '{"images": [], "annotations": [], "categories": []}'},
        {"notes.txt": "cat,1\n"},
        {"broken.json": "[" * 100_000},
        {"words.txt": "not,a,mapping\n"},
    ],
)
def test_files_that_are_no_label_tables_change_nothing(beside: Files) -> None:
    files: Files = {"cat/1.jpg": "", "owl/2.jpg": "", "owl/3.jpg": "", **beside}
    assert find_labels(plan_reading(files), files) == {
        "cat/1.jpg": "cat",
        "owl/2.jpg": "owl",
        "owl/3.jpg": "owl",
    }


@pytest.mark.parametrize(
    "hostile",
    [
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        json.dumps({"file": "cat0.jpg", "label": "x" * 2_000_000}),
        "[" + "[]," * 2_000_000 + "[]]",
        '[{"file": "cat0.jpg", "label": ' + "9" * 10_000 + "}]",
    ],
    ids=["brackets", "braces", "a long label", "a long list", "a long number"],
)
def test_hostile_json_is_refused_or_left_out(hostile: str) -> None:
    with pytest.raises(UnreadableBatchError) as caught:
        plan_reading({**FILES, "labels.json": hostile}, table="labels.json")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "rows",
    [
        '"' + "x" * 1_000_000 + '",cat\n',
        "images/cat0.jpg," + "x" * 1_000_000 + "\n",
        "images/cat0.jpg" + ",x" * 100_000 + "\n",
        "images/cat0.jpg,a\0b\n",
        'images/cat0.jpg,"cat\n',
    ],
    ids=["a huge cell", "a huge label", "many cells", "a NUL", "an open quote"],
)
def test_a_hostile_row_is_one_bad_entry(rows: str) -> None:
    files = add_label_table("images/owl1.jpg,owl\n" + rows)
    plan = plan_reading(files, max_bad=0.5)
    assert find_labels(plan, files) == {"images/owl1.jpg": "owl"} and len(plan.bad_entries) == 1


def test_rows_after_a_broken_one_are_read() -> None:
    plan = plan_reading(add_label_table('images/cat0.jpg,"a"b"\nimages/owl1.jpg,owl\n'))
    assert plan.classes == ["owl"] and "CSV" in plan.bad_entries[0].reason


def test_a_table_has_no_more_entries_than_a_batch() -> None:
    with pytest.raises(UnreadableBatchError, match="has more than 3 entries"):
        find_label_table(
            [*FILES, "t.csv"],
            lambda _: b"file,label\n" + b"cat0.jpg,a\n" * 4,
            BatchReadingOptions(),
            most=3,
        )


def build_task(*choices: list[str], cancelled: bool = False) -> dict[str, Any]:
    results = [[{"value": {"choices": chosen}}] for chosen in choices]
    return {
        "data": {"image": "cat0.jpg"},
        "annotations": [{"result": result, "was_cancelled": cancelled} for result in results],
    }


def build_manifest_line(**fields: Any) -> str:
    return json.dumps({"source-ref": "s3://b/cat0.jpg", "a": 0, "a-metadata": fields})


VERTEX = '{"imageGcsUri": "gs://b/cat0.jpg", %s}'
EDGE = '{"files": [{"path": "cat0.jpg", "label": %s}]}'
ODD = {
    "two annotators agree": ("t.json", [build_task(["cat"], ["cat"])], "cat"),
    "two annotators differ": ("t.json", [build_task(["cat"], ["owl"])], "has several labels"),
    "a cancelled annotation": ("t.json", [build_task(["cat"], cancelled=True)], "has no label"),
    "no annotation": ("t.json", [build_task()], "has no label"),
    "annotations that are none": ("t.json", [{**build_task(), "annotations": 3}], "no list of results"),
    "choices in a cell": (
        "t.csv",
        'image,id,choice,annotator,annotation_id,lead_time\ncat0.jpg,1,"{""choices"": [""a"", '
        '""b""]}",1,1,1\n',
        "has several labels",
    ),
    "two ones": ("_classes.csv", "filename, cat, owl\ncat0.jpg, 1, 1\n", "has several labels"),
    "no one": ("_classes.csv", "filename, cat, owl\ncat0.jpg, 0, 0\n", "has no label"),
    "Vertex, several": ("v.jsonl", VERTEX % '"classificationAnnotations": [{"displayName": "a"}, '
        '{"displayName": "b"}]',
                        "has several labels"),
    "Vertex, several in a row": ("v.csv", "gs://b/cat0.jpg,a,b\n", "has several labels"),
    "Vertex, a use that is none": ("v.csv", "LATER,gs://b/cat0.jpg,a\n", "has “LATER” where "
        "TRAINING"),
    "a manifest of boxes": ("m.manifest", build_manifest_line(type="groundtruth/object-detection"),
        "no classes of whole images"),
    "a manifest of several": ("m.manifest", build_manifest_line(type="groundtruth/image-classification-multilabel",
                              **{"class-map": {"0": "a", "1": "b"}}), "has several labels"),
    "a class beyond the "
    "names": ("labels.json", {"classes": ["a"], "labels": {"cat0": 7}}, "has the class 7"),
    "a class of "
    "none": ("labels.json", {"classes": ["a"], "labels": {"cat0": None}}, "has no label"),
    "a class of -1": ("labels.json", {"classes": ["a"], "labels": {"cat0": -1}}, "has no label"),
    "a label with its "
    "confidence": ("labels.json", {"classes": ["a"], "labels": {"cat0": {"label": "a"}}}, "a"),
    "make-sense, several": ("l.csv", 'cat0.jpg,"[a,b]"\n', "has several labels"),
    "Edge Impulse, none": ("info.labels", EDGE % '{"type": "unlabeled"}', "has no label"),
    "Edge Impulse, over time": ("info.labels", EDGE % '{"type": "multi-label"}', "a label of the "
        "type 'multi-label'"),
}  # fmt: skip
"""A file, and the label or the reason of its one entry."""


@pytest.mark.parametrize("case", ODD)
def test_what_a_tool_writes_of_one_image_is_a_label_or_a_reason(case: str) -> None:
    name, content, expected = ODD[case]
    text = content if isinstance(content, str) else json.dumps(content)
    names = [*FILES, name]
    found = find_label_table(names, lambda _: text.encode(), BatchReadingOptions())
    assert found is not None
    said = [row.label for row in found.rows] or [
        entry.reason for entry in (*found.bad, *found.unlabelled)
    ]
    assert len(said) == 1 and (said[0] == expected or expected in said[0])


def test_classes_of_imagenet_with_one_word_keep_their_ids() -> None:
    words = "n02012849\tcrane\nn03126707\tcrane\nn02121620\tcat, true cat\n"
    rows = "0.JPEG\tn03126707\t0\t0\n1.JPEG\tn02121620\t0\t0\n"
    files: Files = {
        "train/n02012849/1.JPEG": "",
        "train/n03126707/images/2.JPEG": "",
        "train/n02121620/3.JPEG": "",
        "val/images/0.JPEG": "",
        "val/images/1.JPEG": "",
        "val/val_annotations.txt": rows,
        "words.txt": words,
    }
    plan = plan_reading(files)
    assert list(find_labels(plan, files).values()) == [
        *("crane (n02012849)", "crane (n03126707)", "cat"),
        *("crane (n03126707)", "cat"),
    ]
    assert sum(plan.test) == 2


def test_utf_16_without_its_mark_is_read() -> None:
    files: Files = {**FILES, "t.csv": "file,label\ncat0.jpg,Käfer\n".encode("utf-16-be")}
    assert plan_reading(files).classes == ["Käfer"]


def test_a_task_of_a_hundred_thousand_choices_is_one_bad_entry() -> None:
    choices = [str(number) for number in range(100_000)]
    task = {
        "data": {"image": "cat0.jpg"},
        "annotations": [{"result": [{"value": {"choices": choices}}]}],
    }
    good = json.loads(str(SAMPLES["Label Studio JSON"][0]["project-1.json"]))
    plan = plan_reading({**FILES, "t.json": json.dumps([*good, task])})
    assert [bad.where for bad in plan.bad_entries] == ["entry 9 of t.json"]


def test_a_list_of_entries_with_thousands_of_keys_is_read_by_the_first() -> None:
    entry = {"file": "cat0.jpg", "label": "cat", **{f"k{number}": 1 for number in range(20_000)}}
    plan = plan_reading(
        {**FILES, "t.json": json.dumps([entry, {"file": "owl1.jpg", "label": "owl"}])}
    )
    assert plan.classes == ["cat", "owl"]


def test_a_table_of_thousands_of_columns_is_told_by_few_entries() -> None:
    seen: list[str] = []
    images = ImageNameIndex(list(FILES), range(len(FILES)))
    file = LabelTableCandidate(
        0,
        "t.csv",
        "\n".join(
            [",".join(f"c{n}" for n in range(5000)), *[",".join(["x"] * 5000)] * 500]
        ).encode(),
    )
    records = open_table_records(file, "cells")
    assert records is not None

    def record_searched_name(name: str) -> int:
        seen.append(name)
        return -1

    with pytest.raises(NotALabelTable):
        choose_table_columns(
            records, BatchReadingOptions(), record_searched_name, images, is_own=False
        )
    assert len(seen) <= 100_000


def test_many_images_of_one_name_cost_no_search_for_each() -> None:
    names = [f"{number}/1.jpg" for number in range(3000)]
    seen: list[int] = []

    class Counted(list[str]):
        def __getitem__(self, at: Any) -> Any:
            seen.append(at)
            return super().__getitem__(at)

    images = ImageNameIndex(Counted(names), range(len(names)))
    for _ in range(3000):
        assert images.find_image_number("1.jpg") == AMBIGUOUS
    assert len(seen) < 20 * len(names)


@pytest.mark.parametrize(
    ("pattern", "name", "label"),
    [
        ("{label}_{number}", "great_dane_12", "great_dane"),
        ("{label}_{number}", "great_dane", ""),
        ("{number}-{label}", "0012-cat", "cat"),
        ("{label}.{any}", "cat.x.1", "cat"),
        ("{any}_{label}", "a_b_cat", "cat"),
        ("IMG-{label}-{number}", "IMG-cat-1", "cat"),
        ("IMG-{label}-{number}", "DSC-cat-1", ""),
        ("{label}", "cat", "cat"),
    ],
)
def test_a_pattern_finds_the_label_in_a_name(pattern: str, name: str, label: str) -> None:
    assert parse_file_name_pattern(pattern).extract_label(name) == label


@pytest.mark.parametrize(
    "pattern",
    [
        "(.+)_x",
        "{label}{label}",
        "{label}{any}",
        "{kind}_{label}",
        "{any}_{label}_{any}",
        "{" * 201,
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UnreadableBatchError, match="names_pattern"):
        parse_file_name_pattern(pattern)


def test_a_pattern_that_nearly_all_names_fit_is_offered() -> None:
    names = [f"photos/{'great_owl' if n % 2 else 'cat'}_{n}.jpg" for n in range(40)] + [
        "photos/x.jpg"
    ]
    assert suggest_file_name_pattern(names, range(41)) == "{label}_{number}"
    assert not suggest_file_name_pattern([*names, *(f"y{n}y.jpg" for n in range(3))], range(44))
    assert not suggest_file_name_pattern([f"IMG_{n}.jpg" for n in range(9)], range(9))
    with pytest.raises(LabelsInvalid, match=r"\?names_pattern=%7Blabel%7D_%7Bnumber%7D") as caught:
        build_archive_layout(names, ArchiveLimits(), lambda _: b"")
    assert {"option": "names_pattern", "value": "{label}_{number}"}.items() <= caught.value.extra[
        "remedies"
    ][-1].items()
    reading = BatchReadingSettings(BatchReadingOptions(names_pattern="{label}_{number}"))
    assert build_archive_layout(names, ArchiveLimits(), lambda _: b"", reading).classes == [
        "cat",
        "great_owl",
    ]


@pytest.mark.parametrize("name", ["IMAGES/{}.PNG", "{}.Png", r"C:\\shots\\Images\\{}.PNG"])
def test_case_counts_only_where_names_differ_by_it(name: str) -> None:
    there = [f"images/{letter}.png" for letter in "abcd"]
    files: Files = dict.fromkeys(there, b"")
    rows = "".join(f"{name.format(letter)},cat\n" for letter in "abcd")
    plan = plan_reading({**files, "labels.csv": f"path,label\n{rows}"})
    assert find_labels(plan, {**files, "labels.csv": ""}) == dict.fromkeys(there, "cat")
    twins = ImageNameIndex(["images/a.PNG", "images/A.png"], range(2))
    assert (
        twins.find_image_number("images/a.png") == MISSING
        and twins.find_image_number("images/A.png") == 1
    )


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_that_tells_a_spreadsheet_its_separator_is_passed(
    first: str, encoding: str
) -> None:
    rows = "".join(f"{path};{label};a, b\n" for path, label in LABELS.items())
    files: Files = {
        **FILES,
        "labels.csv": f"{first}\npath;label;note\n{rows}none.png;cat;c\n".encode(encoding),
    }
    plan = plan_reading(files)
    assert find_labels(plan, files) == LABELS
    assert [bad.where for bad in plan.bad_entries] == [f"line {3 + len(LABELS)} of labels.csv"]


def test_a_table_that_names_its_separator_alone_is_no_table() -> None:
    folders: Files = {"cat/a.png": b"", "cat/b.png": b"", "dog/c.png": b""}
    files = {**folders, "notes.csv": b"sep=;\n"}
    labels = find_labels(plan_reading(files), files)
    assert labels == {"cat/a.png": "cat", "cat/b.png": "cat", "dog/c.png": "dog"}
    with pytest.raises(UnreadableBatchError, match=r"“labels\.csv” is no table"):
        plan_reading({**folders, "labels.csv": b"sep=;\n"})


@pytest.mark.parametrize(
    ("header", "value", "said"),
    [
        (
            "path,width",
            "64",
            "tell of the files, and not of what they show. If it is the label, say -o label=width",
        ),
        ("file,Date", "2024-05-01", "-o label=Date"),
        ("file,text", "a photo of {}", "differs in each row"),
        ("path,target", "{}.37", "numbers with decimals"),
    ],
)
def test_columns_that_are_no_labels_are_asked_about(header: str, value: str, said: str) -> None:
    rows = "".join(f"{path},{value.format(at)}\n" for at, path in enumerate(IMAGES))
    files: Files = {**FILES, "details.csv": f"{header}\n{rows}"}
    with pytest.raises(UnreadableBatchError, match=re.escape(said)):
        plan_reading(files)
    assert plan_reading(files, label_column=header.split(",")[1]).kind == "table"


def test_images_that_a_table_gives_no_label_are_said() -> None:
    first, label = next(iter(LABELS.items()))
    plan = plan_reading(add_label_table(f"{first},{label}\n"))
    assert plan.left_out_warnings == [
        f"{len(IMAGES) - 1} images left out, which “labels.csv” gives no label."
    ]


@pytest.mark.parametrize("pack", [build_zip, build_tar])
def test_documents_that_are_zips_inside_are_left_out(look: Any, pack: Any) -> None:
    document = build_zip({"[Content_Types].xml": b"<Types/>"})
    found = look(
        pack(
            {
                "cat/1.png": draw_png(1),
                "owl/2.png": draw_png(2),
                "README.docx": document,
                "cat/notes.xlsx": document,
            }
        )
    )
    assert {one["path"] for one in found.ignored_files} == {"README.docx", "cat/notes.xlsx"}
    with pytest.raises(ArchiveHostile, match="itself an archive"):
        look(pack({"cat/1.png": draw_png(1), "cat/2.png": document}))


@pytest.mark.parametrize(
    ("rows", "first", "remedies"),
    [
        ("none.jpg,a\n" * 3 + "images/cat0.jpg,cat\n", "path,label", [("max_bad", "0.75")]),
        (
            "images/cat0.jpg,a,x\nimages/owl1.jpg,b,x\n",
            "path,class,species",
            [("label", "class"), ("label", "species")],
        ),
    ],
)
def test_what_an_option_settles_is_a_remedy(
    rows: str, first: str, remedies: list[tuple[str, str]]
) -> None:
    with pytest.raises(UnreadableBatchError) as raised:
        plan_reading(add_label_table(rows, first))
    assert [one[:2] for one in raised.value.remedies] == remedies
