"""A batch is the same bytes at every reading, from any byte on, and a tar that everybody reads."""

import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources import CROPS, KINDS, SCENE, make_samples, write_class_folders, write_crops, write_file

from perennial.pack import PackedBatch, SourceChanged, open_batch

CLIENT = Path(__file__).parents[3] / "client"
QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PackedBatch:
    make, options = KINDS[request.param]
    return open_batch(make(tmp_path_factory.mktemp(request.param)), **options)  # type: ignore[arg-type]


def read_batch(batch: PackedBatch) -> bytes:
    return b"".join(batch.read_chunks())


def read_members(batch: PackedBatch) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(read_batch(batch))) as tar:
        return {m.name: file.read() for m in tar if (file := tar.extractfile(m))}


def test_size_and_digest_are_those_of_the_bytes(opened: PackedBatch) -> None:
    data = read_batch(opened)
    assert (opened.size, opened.sha256()) == (len(data), hashlib.sha256(data).hexdigest())


@QUICK
@given(share=st.floats(0, 1), off=st.integers(-3, 3))
def test_what_is_read_from_any_byte_is_the_tail_of_the_whole(
    opened: PackedBatch, share: float, off: int
) -> None:
    start = min(max(0, int(share * opened.size) // 512 * 512 + off), opened.size)
    assert b"".join(opened.read_chunks(start)) == read_batch(opened)[start:]


def test_two_readings_at_once_do_not_disturb_each_other(opened: PackedBatch) -> None:
    one, other = opened.read_chunks(), opened.read_chunks(700)
    first = next(one)
    assert b"".join(other) == read_batch(opened)[700:]
    assert first + b"".join(one) == read_batch(opened)


def test_a_start_beyond_the_end_is_refused(opened: PackedBatch) -> None:
    assert b"".join(opened.read_chunks(opened.size)) == b""
    for start in (-1, opened.size + 1):
        with pytest.raises(ValueError, match="cannot be read from byte"):
            opened.read_chunks(start)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_source_elsewhere_and_at_another_time_is_the_same_bytes(
    kind: str, tmp_path: Path
) -> None:
    make, options = KINDS[kind]
    made = [make(tmp_path / name / "same") for name in ("one", "two")]
    for path in (tmp_path / "two").rglob("*"):
        path.chmod(0o700)
        if path.suffix != ".gz":
            os.utime(path, (1, 1))
    one, two = (open_batch(source, **options) for source in made)  # type: ignore[arg-type]
    assert one.sha256() == two.sha256()


def split_part_and_label(name: str) -> tuple[str, str]:
    part, label, _ = name.split("/")
    return part, label


def read_table(table: bytes) -> dict[str, tuple[str, str]]:
    """Return the part and the label of each path in a `labels.csv`."""
    rows = csv.DictReader(io.StringIO(table.decode()))
    return {row["path"]: (row["split"], row["label"]) for row in rows}


@pytest.mark.parametrize("kind", KINDS)
def test_every_image_of_a_source_is_in_the_batch_with_its_own_bytes_part_and_label(
    kind: str, tmp_path: Path
) -> None:
    make, options = KINDS[kind]
    batch = open_batch(make(tmp_path / "source"), **options)  # type: ignore[arg-type]
    found = read_members(batch)
    table = found.pop("labels.csv", None)
    if kind in CROPS:
        assert len(found) == sum(
            path.is_file() for path in write_crops(tmp_path / "crops").rglob("*")
        )
    else:
        said = (
            {name: split_part_and_label(name) for name in found}
            if table is None
            else read_table(table)
        )
        told = sorted((*said[name], data) for name, data in found.items())
        assert told == sorted((sample.part, sample.label, sample.data) for sample in make_samples())
    assert list(found) == sorted(found)
    assert batch.warnings == []


def test_times_owners_and_modes_are_fixed(tmp_path: Path) -> None:
    batch = open_batch(write_class_folders(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(read_batch(batch))) as tar:
        assert {(m.mtime, m.mode, m.uid, m.gid, m.uname, m.gname) for m in tar} == {
            (0, 0o644, 0, 0, "", "")
        }


names = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=90
)
names = names.filter(
    lambda n: not n.startswith(".") and "/" not in n and "\\" not in n and len(n.encode()) < 250
)


@QUICK
@given(
    files=st.dictionaries(names, st.binary(max_size=1500), min_size=1, max_size=6),
    start=st.floats(0, 1),
)
def test_any_names_and_sizes_make_a_tar_that_can_be_read_from_anywhere(
    files: dict[str, bytes], start: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    at = tmp_path_factory.mktemp("any")
    for name, data in files.items():
        write_file(at / "a class" / f"{name}.png", data)
    batch = open_batch(at, kind="folder")
    assert batch.size == len(read_batch(batch))
    assert read_members(batch) == {f"a class/{name}.png": data for name, data in files.items()}
    begin = int(start * batch.size)
    assert b"".join(batch.read_chunks(begin)) == read_batch(batch)[begin:]


@pytest.mark.parametrize("change", ["grow", "shrink", "touch", "remove"])
def test_a_file_that_changes_after_it_was_listed_is_an_error_in_words(
    change: str, tmp_path: Path
) -> None:
    batch = open_batch(write_class_folders(tmp_path))
    assert batch.size > 0
    file = tmp_path / "train/cat/cat-1.png"
    if change == "remove":
        file.unlink()
    elif change == "touch":
        os.utime(file, (1, 1))
    else:
        file.write_bytes(file.read_bytes() + b"more" if change == "grow" else b"less")
    with pytest.raises(SourceChanged, match=r"cat-1\.png.* the batch again|batch again"):
        read_batch(batch)


@pytest.mark.parametrize("kind", ["webdataset", "parquet", "coco"])
def test_a_container_that_changes_is_an_error_in_words(kind: str, tmp_path: Path) -> None:
    make, options = KINDS[kind]
    batch = open_batch(make(tmp_path), **options)  # type: ignore[arg-type]
    assert batch.size > 0
    for path in tmp_path.rglob("*"):
        if path.suffix in (".tar", ".parquet", ".png"):
            os.utime(path, (1, 1))
    with pytest.raises(SourceChanged, match="has changed since it was listed"):
        read_batch(batch)


def test_sizes_of_files_are_known_without_reading_them(tmp_path: Path) -> None:
    batch = open_batch(write_class_folders(tmp_path))
    for path in tmp_path.rglob("*.png"):
        path.unlink()
    data = sum(512 + len(s.data) + -len(s.data) % 512 for s in make_samples())
    assert batch.size == data + 1024


def test_crops_are_the_pixels_of_their_boxes(tmp_path: Path) -> None:
    from PIL import Image

    make, _ = KINDS["coco"]
    found = read_members(open_batch(make(tmp_path / "coco")))  # type: ignore[arg-type]
    by_hand = sorted(
        Image.open(path).tobytes() for path in write_crops(tmp_path / "crops").rglob("*.png")
    )
    cut = sorted(
        Image.open(io.BytesIO(data)).tobytes()
        for name, data in found.items()
        if name != "labels.csv"
    )
    assert cut == by_hand
    assert max(map(len, cut)) < 3 * SCENE * SCENE


def test_reading_keeps_pieces_and_not_files_in_memory(tmp_path: Path) -> None:
    for number in range(8):
        write_file(tmp_path / f"cat/{number}.png", b"")
        os.truncate(tmp_path / f"cat/{number}.png", 16 << 20)
    batch = open_batch(tmp_path)
    tracemalloc.start()
    try:
        read = sum(map(len, batch.read_chunks()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == batch.size > 128 << 20
    assert peak < 8 << 20


def test_the_package_needs_no_library_until_a_kind_does() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(CLIENT)!r}); import perennial.pack; "
        "print([name for name in ('numpy', 'torch', 'PIL', 'pyarrow') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "[]\n"
    )
