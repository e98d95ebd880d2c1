"""Files that cannot be read by their kind or size are named before a batch is accepted; nothing is
decoded.
"""

import contextlib
import gzip
import io
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from core.errors import ArchiveInvalid
from core.ingest import first_look
from core.ingest.image_file import Unreadable, headers
from core.ingest.inspect import ArchiveSummary, summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from tests.core.ingest.hostile_corpus import draw_png
from tests.core.ingest.test_images import build_huge_png, draw_noise, encode_image
from tests.core.ingest.test_picture_kinds import MAX, REFUSED, find_kind, load_kinds

RAW = b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(90)


def build_zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def build_tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def read_directory(path: Path, data: bytes) -> ArchiveSummary:
    path.write_bytes(data)
    return summarise_archive_and_digest_content(
        path, detect_upload_format(data[:SNIFF_BYTES], None), ArchiveLimits()
    )


def build_batch(bad: dict[str, bytes], good: int = 40) -> dict[str, bytes]:
    files = {
        f"{label}/{i:03}.png": draw_png(2 * i + at)
        for at, label in enumerate(("cat", "dog"))
        for i in range(good)
    }
    return {**files, **bad}


FORMS = {
    "zip": build_zip,
    "tar": build_tar,
    "tar.gz": lambda files: gzip.compress(build_tar(files)),
}


@pytest.mark.parametrize("pack", FORMS.values(), ids=FORMS)
def test_images_that_cannot_be_read_are_named_at_the_check(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    found = read_directory(
        tmp_path / "batch",
        pack(build_batch({"cat/a.png": RAW, "dog/big.png": build_huge_png(30_000, 30_000)})),
    )
    assert [row["path"] for row in found.first_look.first] == ["cat/a.png", "dog/big.png"]
    assert found.first_look.first[1]["reason"] == "30000×30000 pixels, more than 50000000"
    assert found.warnings[-1] == (
        "2 of 82 images cannot be read and will be left out; the first is “cat/a.png”: a camera "
        "RAW file, not a PNG, JPEG, WebP, GIF, HEIC, AVIF, BMP or TIFF image; export it as JPEG."
    )


@pytest.mark.parametrize("pack", FORMS.values(), ids=FORMS)
def test_more_than_a_batch_may_have_refuse_it_before_it_is_learned(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    bad = {f"cat/z{i}.png": RAW for i in range(5)}
    with pytest.raises(
        ArchiveInvalid, match=r"5 of 85 images cannot be read, more than 5%; .* a camera RAW file"
    ):
        read_directory(tmp_path / "batch", pack(build_batch(bad)))


def test_of_a_large_batch_images_are_looked_at_from_first_to_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_look, "MOST_IMAGES", 80)
    found = read_directory(
        tmp_path / "batch",
        build_zip(build_batch({f"dog/z{i}.png": RAW for i in range(30)}, good=400)),
    )
    assert (found.first_look.images, found.first_look.looked, found.first_look.unreadable) == (
        830,
        80,
        2,
    )
    assert "2 of 80 images looked at cannot be read" in found.warnings[-1]
    with pytest.raises(ArchiveInvalid, match="of 80 images looked at cannot be read"):
        read_directory(
            tmp_path / "batch",
            build_zip(build_batch({f"dog/z{i}.png": RAW for i in range(250)}, good=300)),
        )


def test_there_is_an_end_to_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "MOST_S", -1.0)
    found = read_directory(tmp_path / "batch", build_zip(build_batch({"cat/a.png": RAW})))
    assert (found.first_look.images, found.first_look.looked, found.warnings) == (81, 0, ())


@pytest.mark.parametrize("name", REFUSED)
def test_headers_say_what_decoding_would(name: str) -> None:
    kind = find_kind(name)
    if "cut off" in kind.refused or "floats from" in kind.refused:  # only its decoder finds that
        headers.check(kind.data, MAX)
        return
    with pytest.raises(Unreadable) as refused:
        headers.check(kind.data, MAX)
    assert kind.refused in str(refused.value)


def test_headers_refuse_nothing_that_is_read() -> None:
    for kind in load_kinds():
        if kind.pixels is not None:
            headers.check(kind.data, MAX)
            headers.check(kind.data[:100], MAX, is_whole=False)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("GIF", {}), ("BMP", {}), ("WEBP", {}), ("WEBP", {"lossless": True}), ("WEBP", {"exif": b"Exif\0\0"}),
     ("AVIF", {}), ("TIFF", {}), ("JPEG", {})],
)  # fmt: skip
def test_the_size_of_an_image_shows_in_its_header(kind: str, options: dict[str, object]) -> None:
    data = encode_image(Image.fromarray(draw_noise(70, 50)), kind, **options)
    times = headers.JPEG_TIMES if kind == "JPEG" else 1
    headers.check(data, 3500)
    with pytest.raises(Unreadable, match="70×50 pixels, more than"):
        headers.check(data, 3499 // times)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + b"\xff" * (16 << 20),
        b"\xff\xd8" + b"\xff\xe1\0\2" * (4 << 20),
        b"II*\0" + struct.pack("<IH", 8, 65_535) + bytes(12 * 65_535),
        b"\x89PNG\r\n\x1a\n" + bytes(16 << 20),
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"ispe" * (4 << 20),
    ],
    ids=[
        "JPEG of fill bytes",
        "JPEG of empty segments",
        "TIFF of 65,535 tags",
        "PNG of zeros",
        "HEIC of sizes",
    ],
)
def test_a_header_without_end_takes_no_time(data: bytes) -> None:
    begin = time.process_time()
    with contextlib.suppress(Unreadable):
        headers.check(data, MAX)
    assert time.process_time() - begin < 1


def test_a_tiff_whose_tags_lie_behind_what_was_read_is_left_to_its_decoder() -> None:
    headers.check(b"II*\0" + struct.pack("<I", 90_000) + bytes(4000), MAX, is_whole=False)
