"""Files that hold images and are not read: what they are said to be, and that the lines convert
them.
"""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from core.errors import ArchiveInvalid, UnsupportedContentType
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import detect_upload_format
from perennial.reading_rules.foreign import FIRST_BYTES, find_unsupported_file_kind


@pytest.mark.parametrize(
    ("name", "first", "what"),
    [
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0\xea\x60", "an IDX file"),
        ("t10k-labels-idx1-ubyte.gz", b"\x1f\x8b\x08\0", "an IDX file"),
        ("photos.7z", b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        ("photos.rar", b"Rar!\x1a\x07\x01\0", "a rar archive"),
        ("photos.tar.xz", b"\xfd7zXZ\0", "packed by bzip2, xz or zstd"),
        ("project.tm", b"", "a Teachable Machine project"),
        ("data-00000-of-00001.arrow", b"ARROW1\0\0", "what save_to_disk of datasets writes"),
        ("data.mdb", b"", "an LMDB database"),
        ("train.tfrecord-00000-of-00002", b"", "a TFRecord file"),
        ("IMG_1.DNG", b"II*\0", "a camera's raw file"),
        ("clip.mov", b"\0\0\0\x14ftypqt", "a video"),
        ("scan.pdf", b"%PDF-1.7", "a PDF"),
        ("data_batch_1", b"\x80\x04\x95", "a pickle"),
        ("x.npy", b"\x93NUMPY\1\0", "a single array"),
        ("x.h5", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ],
)
def test_a_file_is_known_by_its_first_bytes_or_its_name(name: str, first: bytes, what: str) -> None:
    kind = find_unsupported_file_kind(name, first)
    assert kind is not None and kind.description.startswith(what)
    assert len(kind.commands) == 2 and all(line.isprintable() for line in kind.commands)


@pytest.mark.parametrize(
    "name", ["1.png", "1.heic", "cat", "photos.zip", "photos.tar.gz", "labels.csv"]
)
def test_what_is_read_is_not_foreign(name: str) -> None:
    assert (
        find_unsupported_file_kind(
            name, b"\0\0\0\x18ftypheic"[:FIRST_BYTES] if name == "1.heic" else b"\x89PNG"
        )
        is None
    )


def test_names_that_a_shell_would_read_otherwise_are_not_put_into_a_command() -> None:
    kind = find_unsupported_file_kind("photos/my scan.pdf")
    assert kind is not None and "FILE" in kind.format_conversion_advice(
        "photos/my scan.pdf; rm -r x"
    )
    assert "pdftoppm -r 150 -jpeg photos/scan.pdf" in kind.format_conversion_advice(
        "photos/scan.pdf"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\0\0\x08\x03" + bytes(2000), "those of an IDX file.*np.savez_compressed"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(2000), "those of a 7z archive.*7z x FILE -obatch"),
        (b"%PDF-1.7" + bytes(2000), "those of a PDF.*pdftoppm"),
    ],
)
def test_the_service_says_what_a_body_is(body: bytes, said: str) -> None:
    with pytest.raises(UnsupportedContentType, match=said):
        detect_upload_format(body, None)


def test_a_packed_idx_file_is_told_from_a_tar(tmp_path: Path) -> None:
    file = tmp_path / "x.gz"
    file.write_bytes(gzip.compress(build_idx(3)))
    with pytest.raises(ArchiveInvalid, match="no tar but an IDX file"):
        summarise_archive_and_digest_content(file, "gzip", ArchiveLimits())


def build_idx(images: int, side: int = 28) -> bytes:
    """Build an IDX file of images."""
    pixels = np.arange(images * side * side, dtype=np.uint8)
    return struct.pack(">HBBIII", 0, 8, 3, images, side, side) + pixels.tobytes()


def test_the_lines_for_idx_files_make_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train-images-idx3-ubyte").write_bytes(build_idx(20))
    Path("train-labels-idx1-ubyte").write_bytes(
        struct.pack(">HBBI", 0, 8, 1, 20) + bytes([3, 7] * 10)
    )
    kind = find_unsupported_file_kind("train-images-idx3-ubyte")
    assert kind is not None
    exec("\n".join(kind.commands), {})
    assert summarise_archive_and_digest_content(
        Path("batch.npz"), "npz", ArchiveLimits()
    ).classes == {
        "3": 10,
        "7": 10,
    }
