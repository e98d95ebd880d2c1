"""Refused or omitted files of each kind, and the messages about them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import (
    make_noise_png,
    write_class_folders,
    write_coco,
    write_file,
    write_parquet,
    write_shards,
    write_yolo,
)

from perennial.pack import PackError, open_batch
from perennial.pack.sources.plain_yaml import parse_simple_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo,bar\n2.png,cat\n", "has the columns “foo”, “bar”.*Expected is a column of images and "
            "one of labels"),
        ("path\n1.png\n", "is no table: it begins with “path”"),
        ("path,label\n", "lists no images"),
        ("path,label\n1.png\n", "line 2 of list.csv: has 1 cells instead of 2"),
        ("path,label,split\n1.png,cat,train\n1.png,cat,\n2.png,a,later\n3.png,a,later\n",
         "has the split “later”; it must be train, test, validation or empty"),
        ('path,label\n"1.png,cat\n', "is not valid CSV"),
        ("path,label\n2.png,cat\n", "line 2 of list.csv: names “2.png”, which is not in the "
            "folder"),
        ("path,label\n1.png,cat\n./1.png,dog\n", "names “./1.png” with “dog”; line 2 of list.csv "
            "says the label “cat”"),
        ("path,label\n../out.png,cat\n", "line 2 of .* out of the folder .* allow_outside=True"),
        ("path,label\n/etc/hostname,cat\n", "out of the folder"),
        ("path,label,split\n1.png,cat,test\n", "has a test part, but no images to learn"),
    ],
)  # fmt: skip
def test_a_list_is_refused_with_the_line_and_the_remedy(
    text: str, said: str, tmp_path: Path
) -> None:
    write_file(tmp_path / "out.png", make_noise_png("out"))
    write_file(tmp_path / "in/1.png", make_noise_png("1"))
    write_file(tmp_path / "in/list.csv", text.encode())
    with pytest.raises(PackError, match=said):
        open_batch(tmp_path / "in/list.csv")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("path;label\n1.png;Käfer\n", "utf-8-sig"),
        ("path\tlabel\n1.png\tKäfer\n", "utf-16"),
        ("label|file\nKäfer|1\n", "utf-8"),
        ("1.png,Käfer\n", "utf-16-le"),
    ],
)
def test_a_list_is_read_whatever_separates_its_cells(
    text: str, encoding: str, tmp_path: Path
) -> None:
    write_file(tmp_path / "below/1.png", make_noise_png("1"))
    write_file(tmp_path / "list.csv", text.encode(encoding))
    assert "Käfer" in open_batch(tmp_path / "list.csv").describe()


def test_paths_outside_are_sent_where_it_is_asked_for(tmp_path: Path) -> None:
    write_file(tmp_path / "out.png", make_noise_png("out"))
    write_file(tmp_path / "in/list.csv", b"path,label\n../out.png,cat\n")
    batch = open_batch(tmp_path / "in/list.csv", allow_outside=True)
    assert make_noise_png("out") in b"".join(batch.read_chunks())
    (warning,) = batch.warnings
    assert warning.startswith("1 image got another name in the batch, renamed/<number>-<name>")


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_leaves_the_folder_is_refused(linked: str, tmp_path: Path) -> None:
    source = write_class_folders(tmp_path / "in")
    write_file(tmp_path / "out/secret.png", make_noise_png("secret"))
    link = source / "train/cat" / ("secret.png" if linked == "file" else "more")
    link.symlink_to(tmp_path / "out" / ("secret.png" if linked == "file" else ""))
    with pytest.raises(PackError, match="a link that leads out of the folder"):
        open_batch(source)
    assert make_noise_png("secret") in b"".join(
        open_batch(source, allow_outside=True).read_chunks()
    )


def test_links_inside_the_folder_are_followed_and_circles_refused(tmp_path: Path) -> None:
    source = write_class_folders(tmp_path)
    (source / "train/cat/again.png").symlink_to(source / "train/cat/cat-0.png")
    assert "15 images" in open_batch(source).describe()
    (source / "train/cat/up").symlink_to(source / "train")
    with pytest.raises(PackError, match="leads to a folder that it lies in"):
        open_batch(source)


def test_what_is_left_out_of_a_folder_is_said(tmp_path: Path) -> None:
    source = write_class_folders(tmp_path)
    for name in (
        "README.md",
        "train/cat/notes.txt",
        "cover.png",
        "extra/1.png",
        ".git/1.png",
        "train/cat/more.zip",
    ):
        write_file(source / name, b"x")
    batch = open_batch(source)
    assert "14 images" in batch.describe()
    assert sorted(batch.warnings) == [
        "1 file left out (an archive, by its name: unpack it first): “train/cat/more.zip”.",
        "1 file left out (in the folder “extra”, which is no part of the batch): “extra/1.png”.",
        "1 file left out (not an image, by its name): “train/cat/notes.txt”.",
        "1 hidden folder left out: “.git”.",
        "2 files left out (outside any class folder): “README.md”, “cover.png”.",
    ]


def test_a_test_folder_alone_is_left_to_the_service(tmp_path: Path) -> None:
    write_file(tmp_path / "test/cat/1.png", b"x")
    assert "1 image" in open_batch(tmp_path).describe()


def test_names_that_the_service_would_refuse_are_told(tmp_path: Path) -> None:
    write_file(tmp_path / "cat/a\nb.png", b"x")
    with pytest.raises(PackError, match=r"“cat/a.+b.png” has a control character"):
        open_batch(tmp_path)


def test_samples_without_label_are_left_out_and_damage_is_told(tmp_path: Path) -> None:
    source = write_shards(tmp_path)
    (source / "classnames.txt").write_text("cat")
    with pytest.raises(PackError, match=r"has the class 1, but .*classnames.txt” names 1 classes"):
        open_batch(source)
    assert "(“a” 7, “b” 7)" in open_batch(source, names=["a", "b"]).describe()
    shard = source / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(PackError, match="is damaged, or no tar"):
        open_batch(source, kind="webdataset")


def write_columns(at: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), at / "some.parquet")
    return at / "some.parquet"


def test_columns_of_parquet_are_found_or_asked_for(tmp_path: Path) -> None:
    image = [
        {"bytes": make_noise_png("1"), "path": None},
        {"bytes": make_noise_png("2"), "path": None},
    ]
    assert (
        "(“cat” 1, “dog” 1)"
        in open_batch(write_columns(tmp_path, image=image, label=["cat", "dog"])).describe()
    )
    file = write_columns(tmp_path, picture=image, kind=["cat", "dog"])
    with pytest.raises(
        PackError,
        match=r"no column “image”; its columns are “picture”, “kind”. Say which with image=",
    ):
        open_batch(file)
    assert "2 images" in open_batch(file, image="picture", label="kind").describe()
    with pytest.raises(PackError, match="images are bytes of files"):
        open_batch(write_columns(tmp_path, image=["a.png"], label=["cat"]))


def test_rows_without_label_or_image_are_told(tmp_path: Path) -> None:
    image: list[object] = [
        {"bytes": make_noise_png("1"), "path": "a"},
        {"bytes": None, "path": "b.png"},
    ]
    batch = open_batch(write_columns(tmp_path, image=image, label=[1, -1]))
    assert (batch.warnings, "1 image of" in batch.describe()) == (
        ["1 row without a label left out."],
        True,
    )
    batch = open_batch(write_columns(tmp_path, image=image, label=[1, 2]))
    assert batch.size > 0 and "1 image of" in batch.describe()
    assert "has no image in it, perhaps only its path" in batch.warnings[0]


def test_damaged_parquet_is_told(tmp_path: Path) -> None:
    file = write_parquet(tmp_path) / "data/train-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(PackError, match="is damaged, or no parquet"):
        open_batch(tmp_path)


def write_changed_coco(at: Path, change: dict[str, object], where: str = "annotations") -> Path:
    file = write_coco(at) / "annotations/instances_train.json"
    document = json.loads(file.read_text())
    document[where][0].update(change)
    file.write_text(json.dumps(document))
    return at


def test_images_that_are_nowhere_are_told_with_the_folders(tmp_path: Path) -> None:
    file = write_coco(tmp_path) / "annotations/instances_train.json"
    file.write_text(file.read_text().replace(".png", ".jpeg"))
    with pytest.raises(PackError, match=r"is in none of the folders .* Say with images="):
        open_batch(tmp_path)
    with pytest.raises(PackError, match="out of the folder"):
        open_batch(
            write_changed_coco(tmp_path / "out", {"file_name": "../../../etc/hostname"}, "images")
        )


def test_crowds_and_empty_boxes_are_left_out_and_said(tmp_path: Path) -> None:
    assert (
        "1 annotation of crowds left out."
        in open_batch(write_changed_coco(tmp_path / "a", {"iscrowd": 1})).warnings
    )
    for number, box in enumerate(([1, 1, 0, 5], [30, 1, 5, 5], [-5, -5, 5, 5])):
        batch = open_batch(write_changed_coco(tmp_path / f"b{number}", {"bbox": box}))
        assert batch.warnings == ["1 box of no area, or outside the image, left out."]
        assert "27 images" in batch.describe()


def test_boxes_are_kept_within_their_image(tmp_path: Path) -> None:
    batch = open_batch(write_changed_coco(tmp_path, {"bbox": [-4.5, 17.2, 90, 90]}))
    assert batch.sha256()


def test_whole_images_of_several_classes_are_left_out(tmp_path: Path) -> None:
    batch = open_batch(write_changed_coco(tmp_path, {"category_id": 20}), whole=True)
    assert (
        batch.warnings == ["1 image of several classes left out."]
        and "13 images" in batch.describe()
    )


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("data.yaml", "train: train/images\nnames: []\n", "has no list “names”"),
        ("data.yaml", "train: ../../etc\nnames: [cat, dog]\n", "out of the folder"),
        ("data.yaml", "train: nowhere\nnames: [cat, dog]\n", "names “nowhere”, which is not in"),
        ("data.yaml", "train: train/images\nnames: [cat]\n", "has the class 1, but “data.yaml” "
            "names 1 classes"),
    ],
)  # fmt: skip
def test_yolo_that_does_not_fit_together_is_told(
    file: str, text: str, said: str, tmp_path: Path
) -> None:
    write_yolo(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(PackError, match=said):
        open_batch(tmp_path / "data.yaml", kind="yolo")


def test_polygons_of_yolo_are_cut_by_their_bounds(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    plain = open_batch(tmp_path).sha256()
    (tmp_path / "train/labels/cat-0.txt").write_text(
        "0 0.05 0.1 0.45 0.1 0.45 0.55 0.05 0.55\n0 0.5 0.5 0.9 0.5 0.9 0.8 0.5 0.8\n"
    )
    assert open_batch(tmp_path).sha256() == plain


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("names: [cat, 'big dog', \"x, y\"]  # three", ["cat", "big dog", "x, y"]),
        ("names: ['a',\n  'b # c',\n]", ["a", "b # c"]),
        ("names:\n- cat\n- 'it''s'\n", ["cat", "it's"]),
        ('names:\n  0: cat\n  1: "dog"\n', {"0": "cat", "1": "dog"}),
        ("names: {0: cat, 1: dog}\n", {"0": "cat", "1": "dog"}),
        ("\ufeff---\nnames:\n    - traffic light\n", ["traffic light"]),
    ],
)
def test_names_are_read_as_yaml_has_them(text: str, names: object) -> None:
    import yaml

    assert parse_simple_yaml(text, "a file")["names"] == names
    by_yaml = yaml.safe_load(text.removeprefix("\ufeff"))["names"]
    assert by_yaml == (
        {int(key): name for key, name in names.items()} if isinstance(names, dict) else names
    )


@pytest.mark.parametrize("text", ["names: [a, b", "names: [a, [b]]", "? odd", "names: [a: {b}]"])
def test_yaml_beyond_names_and_folders_is_refused_in_words(text: str) -> None:
    with pytest.raises(PackError, match="a file"):
        parse_simple_yaml(text, "a file")
