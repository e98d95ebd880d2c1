"""Layouts of archives: allowed folders, stripped and ignored files, and allowed labels."""

import gzip
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hostile_corpus import (
    build_good_arrays,
    build_npz,
    build_pax_entry,
    build_tar,
    build_tar_entry,
    build_zip,
    draw_pictures,
    draw_png,
)
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ArchiveHostile, ArchiveInvalid, LabelsInvalid, PerennialError
from core.ingest.ingest import IngestedBatch
from core.ingest.inspect import ArchiveSummary
from core.ingest.layout import build_archive_layout
from core.ingest.limits import ArchiveLimits
from core.ingest.names import (
    check_and_normalise_class_label,
    check_and_normalise_entry_path,
    quote_name,
)

Look = Callable[..., ArchiveSummary]


def build_csv_zip(text: str | bytes) -> bytes:
    names = ("a.png", "b.png", "c/d.png")
    return build_zip({n: draw_png(i) for i, n in enumerate(names)} | {"labels.csv": text})  # type: ignore[dict-item]


def test_train_and_test_folders_are_two_parts(look: Look) -> None:
    found = look(build_zip(draw_pictures(3, top="train/") | draw_pictures(2, top="test/")))
    assert (found.layout, found.n_train, found.n_test, found.has_test) == ("split", 6, 4, True)
    assert found.classes == {"cat": 5, "dog": 5}


def test_class_folders_are_one_part(look: Look) -> None:
    found = look(build_zip(draw_pictures(3)))
    assert (found.layout, found.n_train, found.n_test) == ("folders", 6, 0)


def test_a_zip_made_by_a_file_manager_is_accepted(look: Look) -> None:
    files = {f"My pets/{k}": v for k, v in draw_pictures(3, top="train/").items()}
    junk = (
        "__MACOSX/My pets/._x.png",
        "My pets/.DS_Store",
        "My pets/train/cat/Thumbs.db",
        "My pets/train/.hidden/a",
    )
    found = look(
        build_zip(files | {"My pets/": b"", "My pets/train/": b""} | dict.fromkeys(junk, b"junk"))
    )
    assert found.classes == {"cat": 3, "dog": 3}
    assert found.ignored == 4


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["cat/1.png", "cat/2.png"], {"cat"}),
        (["w/cat/1.png", "w/dog/2.png"], {"cat", "dog"}),
        (["w/cat/1.png", "w/README.txt"], {"cat"}),
        (["cat/1.png", "cat/sub/2.png"], {"cat"}),
        (["cat/a/1.png", "dog/a/b/2.png"], {"cat", "dog"}),
        (["train/cat/1.png"], {"cat"}),
        (["w/train/cat/x/1.png", "w/notes.txt", "w/val/cat/2.png"], {"cat"}),
    ],
)
def test_one_common_top_folder_is_stripped(names: list[str], classes: set[str]) -> None:
    assert set(build_archive_layout(names, ArchiveLimits(), lambda i: b"").classes) == classes


def test_files_outside_class_folders_are_ignored_and_noted(look: Look) -> None:
    found = look(
        build_zip(draw_pictures(2, top="train/") | {"README.md": b"hello", "docs/cat/0.txt": b"x"})
    )
    assert found.ignored == 2
    assert found.notes == (
        "the folder “train” was taken as the training part",
        "1 file outside any class folder ignored",
        "1 file in the folder “docs” ignored",
    )
    assert found.ignored_files == (
        {"path": "README.md", "reason": "outside any class folder"},
        {"path": "docs/cat/0.txt", "reason": "in the folder “docs”, which is no part of the batch"},
    )
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("TRAIN", "TEST"), ("training", "Testing")]
)
@pytest.mark.parametrize("top", ["", "My clothes/", "Test/"])
def test_train_and_test_folders_in_any_case_are_parts_and_no_classes(
    look: Look, train: str, test: str, top: str
) -> None:
    found = look(
        build_zip(draw_pictures(3, top=f"{top}{train}/") | draw_pictures(2, top=f"{top}{test}/"))
    )
    assert (found.layout, found.n_train, found.n_test) == ("split", 6, 4)
    assert found.classes == {"cat": 5, "dog": 5}
    assert set(found.notes) == {
        f"the folder “{train}” was taken as the training part",
        f"the folder “{test}” was taken as the test part",
    }


@pytest.mark.parametrize("name", ["val", "Val", "valid", "Validation"])
def test_a_validation_folder_is_held_out_where_there_is_no_test_folder(
    look: Look, name: str
) -> None:
    found = look(build_zip(draw_pictures(3, top="train/") | draw_pictures(2, top=f"{name}/")))
    assert (found.n_train, found.n_test, found.has_test) == (6, 4, True)
    assert (
        f"the folder “{name}” was taken as the test part, since there is no test folder"
        in found.notes
    )


def test_a_validation_folder_is_trained_on_where_there_is_a_test_folder(look: Look) -> None:
    parts = (
        draw_pictures(3, top="train/")
        | draw_pictures(2, top="valid/")
        | draw_pictures(1, top="Test/")
    )
    found = look(build_zip(parts))
    assert (found.n_train, found.n_test) == (10, 2)
    assert (
        "the folder “valid” was added to the training part, since there is a test folder"
        in found.notes
    )


def test_folders_of_one_part_in_several_spellings_join(look: Look) -> None:
    found = look(
        build_zip(
            draw_pictures(3, top="train/")
            | draw_pictures(2, top="Train/")
            | draw_pictures(1, top="TEST/")
        )
    )
    assert (found.n_train, found.n_test, found.classes) == (10, 2, {"cat": 6, "dog": 6})


@pytest.mark.parametrize(
    "names",
    [
        ["Test/hat/1.png", "Test/cap/2.png"],
        ["w/Validation/hat/1.png", "w/test/hat/2.png"],
        ["Test/hat/1.png", "hat/2.png"],
        ["Test/Hat/1.png", "hat/2.png", "Train/3.png"],
        ["train/1.png", "test/hat/1.png"],
    ],
)
def test_a_test_part_without_a_training_part_is_refused_with_what_to_do(names: list[str]) -> None:
    with pytest.raises(ArchiveInvalid, match=r"but no training images.* [Pp]ut "):
        build_archive_layout(names, ArchiveLimits(), lambda i: b"")


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["test/1.png", "Train/2.png", "bus/3.png"], {"test", "Train", "bus"}),
        (["valid/a/1.png", "invalid/b/2.png"], {"valid", "invalid"}),
        (["w/Train/1.png", "w/bus/2.png"], {"Train", "bus"}),
    ],
)
def test_a_class_may_be_called_like_a_part_and_is_warned_about(
    names: list[str], classes: set[str]
) -> None:
    layout = build_archive_layout(names, ArchiveLimits(), lambda i: b"")
    assert (layout.kind, set(layout.classes)) == ("folders", classes)
    assert all("was taken as a class" in text for text in layout.warnings) and layout.warnings


def test_images_beside_the_parts_are_left_out_with_a_warning() -> None:
    layout = build_archive_layout(
        ["train/cat/1.png", "bus/2.png", "test/3.png", "b.png"], ArchiveLimits(), lambda i: b""
    )
    assert layout.classes == ["cat"]
    assert [row["path"] for row in layout.ignored_files] == ["bus/2.png", "test/3.png", "b.png"]
    assert "2 images in “bus”, “test” left out" in layout.warnings[1]


def test_files_that_labels_csv_does_not_list_are_named(look: Look) -> None:
    found = look(build_csv_zip("path,label\na.png,x\nb.png,y\n"))
    assert found.ignored_files == ({"path": "c/d.png", "reason": "not listed in labels.csv"},)


def test_a_list_of_labels_of_another_name_is_said_to_be_ignored(look: Look) -> None:
    found = look(build_zip(draw_pictures(2) | {"annotations.csv": b"path,label\n"}))
    assert "names no images of the batch beside labels" in found.ignored_files[0]["reason"]


def test_arrays_that_are_not_read_are_named(look: Look) -> None:
    found = look(build_npz(build_good_arrays() | {"weights": np.zeros(3)}))
    assert found.ignored == 1 and found.ignored_files[0]["path"] == "weights.npy"
    assert "test_labels and classes" in found.ignored_files[0]["reason"]


@given(
    st.lists(
        st.sampled_from(["train", "Train", "test", "val", "hat", "Hat"]).flatmap(
            lambda top: st.sampled_from(
                [f"{top}/{i}/x.png" for i in ("hat", "bus")] + [f"{top}/x.png"]
            )
        ),
        min_size=1,
        unique=True,
    )
)
def test_every_file_of_an_archive_is_learned_or_named_with_its_reason(names: list[str]) -> None:
    try:
        layout = build_archive_layout(names, ArchiveLimits(), lambda i: b"")
    except PerennialError as error:
        assert error.detail.isprintable()
        return
    left = {row["path"] for row in layout.ignored_files}
    assert left == {name for name, number in zip(names, layout.of, strict=True) if number < 0}
    assert layout.ignored == len(left)
    assert not left or layout.warnings


@pytest.mark.parametrize("names", [["a.png"], [".hidden/a.png"], ["test/cat/a.png"], []])
def test_an_archive_without_training_images_is_refused(names: list[str]) -> None:
    with pytest.raises(ArchiveInvalid):
        build_archive_layout(names, ArchiveLimits(), lambda i: b"")


def test_a_class_without_training_images_is_refused() -> None:
    with pytest.raises(LabelsInvalid, match="dog"):
        build_archive_layout(["train/cat/1.png", "test/dog/1.png"], ArchiveLimits(), lambda i: b"")


def test_labels_csv_names_labels_and_parts(look: Look) -> None:
    text = "\ufeffpath,label,split\r\na.png,=1+1,train\r\n./b.png,=1+1,test\r\nc/d.png,Ärger,\r\n"
    found = look(build_csv_zip(text))
    assert found.classes == {"=1+1": 2, "Ärger": 1}
    assert (found.layout, found.n_train, found.n_test, found.ignored) == ("csv", 2, 1, 0)


def test_labels_csv_in_a_wrapper_folder_is_found(look: Look) -> None:
    files = {
        "w/a.png": draw_png(1),
        "w/b.png": draw_png(2),
        "w/labels.csv": b"path,label\na.png,x\nb.png,y\n",
    }
    assert look(build_zip(files)).classes == {"x": 1, "y": 1}
    assert look(build_tar(files)).classes == {"x": 1, "y": 1}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "path\na.png\n",
            "is no table: it begins with “path”.*such as “path,label”.*\\?image=COLUMN",
        ),
        ("\n", "is no table: it is empty"),
        (
            "foo,bar\nq,x\n",
            "has the columns “foo”, “bar”; its first entry is “q,x”, and none of them names images",
        ),
        ("path,label\n", "lists no images: .*has no entries"),
        (
            "path,label\nmissing.png,x\n",
            "line 2 of labels.csv: names “missing.png”, which is not in the batch",
        ),
        (
            "path,label\na.png,x\na.png,y\n",
            "names “a.png” with “y”; line 2 of labels.csv says the label “x”",
        ),
        ("path,label\na.png\n", "line 2 .* 1 cells"),
        (
            "path,label,split\na.png,x,train\na.png,x,\nb.png,x,secret\nc/d.png,y,secret\n",
            "split “secret”",
        ),
        ("path,label\na.png,\n", "“a.png” has no label"),
        (f"path,label\na.png,{'x' * 101}\n", "longer than 100"),
        ('path,label\na.png,"a\nb"\n', r"U\+000A \(LINE FEED\) at position 2"),
        (b"path,label\na.png,\xff\n", "UTF-8"),
        ('path,label\na.png,"x\n', "CSV"),
        ("path,label\n" + "x" * 200_000 + ",a\n", "CSV|longer"),
        ("path,label\n../../etc/passwd,x\n", "names “../../etc/passwd”, which is not in the batch"),
    ],
)
def test_a_wrong_labels_csv_is_refused_with_its_line(look: Look, text: str, error: str) -> None:
    with pytest.raises(LabelsInvalid, match=error):
        look(build_csv_zip(text))


def test_npz_integers_become_texts_unless_classes_names_them(look: Look) -> None:
    assert look(build_npz(build_good_arrays())).classes == {"0": 10, "1": 10}
    assert look(build_npz(build_good_arrays() | {"classes": np.array(["cat", "Dog"])})).classes == {
        "Dog": 10,
        "cat": 10,
    }
    assert look(build_npz(build_good_arrays() | {"labels": np.array(["é"] * 20)}, 8)).classes == {
        "é": 20
    }


def test_npz_test_arrays_are_the_test_part(look: Look) -> None:
    arrays = build_good_arrays()
    found = look(
        build_npz(
            arrays | {"test_images": arrays["images"][:5], "test_labels": arrays["labels"][:5]}
        )
    )  # type: ignore[index]
    assert (found.n_train, found.n_test, found.classes) == (20, 5, {"0": 13, "1": 12})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"images": np.zeros((20, 8, 8, 3), np.float32)}, "must be uint8"),
        ({"images": np.zeros((20, 8, 8, 2), np.uint8)}, "must be uint8"),
        ({"images": np.asfortranarray(np.zeros((20, 8, 8, 3), np.uint8))}, "Fortran"),
        ({"labels": np.zeros(19, np.int64)}, "shape"),
        ({"labels": np.zeros(20, np.float64)}, "integers or strings"),
        ({"labels": np.full(20, 7), "classes": np.array(["a", "b"])}, "has 2 names"),
        ({"labels": np.full(20, -1), "classes": np.array(["a", "b"])}, "has 2 names"),
        ({"labels": np.array(["x" * 101] * 20)}, "longer than 100"),
        ({"labels": np.full(20, 0x7FFFFFFF, np.uint32).view("<U1")}, "not valid text"),
        ({"labels": np.full(20, b"\xff")}, "not UTF-8"),
        ({"labels": np.zeros(20, [("a", "i4")])}, "plain array"),
        ({"test_images": np.zeros((1, 8, 8, 3), np.uint8)}, "both"),
    ],
)
def test_npz_arrays_of_another_form_are_refused(
    look: Look, change: dict[str, np.ndarray], error: str
) -> None:
    with pytest.raises((ArchiveInvalid, LabelsInvalid), match=error):
        look(build_npz(build_good_arrays() | change))


def test_long_and_foreign_names_in_tar_are_read(look: Look) -> None:
    deep = "a" * 60 + "/" + "b" * 80 + ".png"
    name = ("train/cat/" + deep).encode()
    gnu = build_tar_entry(b"././@LongLink", name + b"\0", b"L") + build_tar_entry(
        name[:100], draw_png(1)
    )
    other = build_pax_entry({"path": "train/Käse/1.png", "mtime": "1.5"}) + build_tar_entry(
        b"x", draw_png(2)
    )
    assert look(build_tar({}, gnu, other)).classes == {"Käse": 1, "cat": 1}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("zeros", [0, 512, 10240 - 1024, 3 << 18])
def test_tars_written_one_after_another_are_read_whole(
    look: Look, take: Callable[..., IngestedBatch], pack: Callable[[bytes], bytes], zeros: int
) -> None:
    one, two = (
        build_tar(draw_pictures(3, ["cat"])) + bytes(zeros),
        build_tar(draw_pictures(2, ["dog", "owl"])) + bytes(zeros),
    )
    whole = one + two if pack is bytes else pack(one) + pack(two)  # as `cat one two` makes them
    assert look(whole).classes == {"cat": 3, "dog": 2, "owl": 2}
    assert take(whole, held_out_share=0).classes == {"cat": 3, "dog": 2, "owl": 2}


@given(st.text(max_size=300))
def test_any_label_is_normalised_or_refused(text: str) -> None:
    try:
        label = check_and_normalise_class_label(text, "here")
    except LabelsInvalid as error:
        assert error.detail.isprintable()
    else:
        assert 0 < len(label) <= 100
        assert (
            label
            == unicodedata.normalize("NFC", text).strip()
            == check_and_normalise_class_label(label, "here")
        )


@given(st.text(max_size=300) | st.from_regex(r"[a./\\:C]{0,30}"))
def test_any_path_is_cleaned_or_refused(text: str) -> None:
    try:
        path = check_and_normalise_entry_path(text)
    except ArchiveHostile as error:
        assert error.detail.isprintable()
    else:
        assert not path.startswith("/") and "\\" not in path
        assert not {"..", "."} & set(path.split("/")) and (not path or "" not in path.split("/"))
        assert check_and_normalise_entry_path(path) == path


@given(st.text(max_size=400) | st.binary(max_size=400))
def test_any_name_can_be_shown(name: str | bytes) -> None:
    assert len(quote_name(name)) <= 130 and quote_name(name).isprintable()
