"""The digest of what a batch holds: containers, names and order do not count; images, labels and
parts do.
"""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.contract.reports.report import DuplicatesPolicy
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.layout import BatchReadingSettings
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from perennial.reading_rules.entries import BatchReadingOptions
from perennial.reading_rules.options import parse_reading_option_texts

Files = dict[str, bytes]
USUAL = BatchReadingOptions()


def draw_png(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


A, B, C, D = (draw_png(seed) for seed in range(4))
BATCH: Files = {"cat/1.png": A, "cat/2.png": B, "dog/1.png": C, "dog/2.png": D}


def build_zip(files: Files, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def build_tar(files: Files, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 12345
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def build_npz(
    images: "np.typing.NDArray[np.uint8]", labels: list[str], *, packed: bool = True
) -> bytes:
    out = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(out, images=images, labels=np.array(labels))
    return out.getvalue()


@pytest.fixture
def digest_of(tmp_path: Path) -> "Digest":
    return Digest(tmp_path / "batch")


class Digest:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(
        self,
        data: bytes,
        duplicates: DuplicatesPolicy = "keep",
        options: BatchReadingOptions = USUAL,
    ) -> str:
        self.path.write_bytes(data)
        kind = detect_upload_format(data[:SNIFF_BYTES], None)
        found = summarise_archive_and_digest_content(
            self.path, kind, ArchiveLimits(), BatchReadingSettings(options), duplicates
        ).content
        assert found is not None and len(found) == 64
        return found


SAME = {
    "deflated": build_zip(BATCH, zipfile.ZIP_DEFLATED),
    "another order": build_zip(dict(reversed(BATCH.items()))),
    "other names": build_zip(
        {f"{label}/x{n}.png": BATCH[f"{label}/{n}.png"] for label in ("dog", "cat") for n in (2, 1)}
    ),
    "a folder around it": build_zip({f"week/{name}": data for name, data in BATCH.items()}),
    "a part that is named": build_zip({f"train/{name}": data for name, data in BATCH.items()}),
    "tar": build_tar(BATCH),
    "tar.gz": build_tar(BATCH, "w:gz"),
    "a text beside it": build_zip({**BATCH, "README.txt": b"of week 31"}),
    "a label table": build_zip(
        {
            "labels.csv": b"file,label\n"
            + b"".join(
                b"%s,%s\n" % (f"{i}.png".encode(), n[:3].encode()) for i, n in enumerate(BATCH)
            ),
            **{f"{i}.png": data for i, data in enumerate(BATCH.values())},
        }
    ),
}


@pytest.mark.parametrize("how", SAME)
def test_the_same_images_and_labels_have_one_digest_in_any_container(
    how: str, digest_of: Digest
) -> None:
    assert digest_of(SAME[how]) == digest_of(build_zip(BATCH))


OTHER = {
    "one image less": {name: data for name, data in BATCH.items() if name != "cat/2.png"},
    "one image twice": {**BATCH, "cat/3.png": A},
    "one byte more": {**BATCH, "cat/1.png": A + b"\0"},
    "labels that are swapped": {"dog/1.png": A, "dog/2.png": B, "cat/1.png": C, "cat/2.png": D},
    "one image under another label": {**BATCH, "cat/2.png": D, "dog/2.png": B},
    "another label": {name.replace("cat", "cats"): data for name, data in BATCH.items()},
    "a part of its own for the test": {
        **{f"train/{name}": data for name, data in BATCH.items() if name != "cat/2.png"},
        "test/cat/2.png": B,
    },
}


@pytest.mark.parametrize("what", OTHER)
def test_other_images_labels_or_parts_have_another_digest(what: str, digest_of: Digest) -> None:
    assert digest_of(build_zip(OTHER[what])) != digest_of(build_zip(BATCH))


def test_equal_images_count_once_where_they_are_dropped(digest_of: Digest) -> None:
    twice = build_zip({**BATCH, "cat/3.png": A})
    assert (
        digest_of(twice, "drop")
        == digest_of(build_zip(BATCH), "drop")
        == digest_of(build_zip(BATCH))
    )


def test_options_of_reading_count_by_what_they_change(digest_of: Digest) -> None:
    data = build_zip(BATCH)
    assert digest_of(data, options=BatchReadingOptions(layout="folders")) == digest_of(data)
    assert digest_of(data, options=BatchReadingOptions(max_bad=0.2)) == digest_of(data)
    deep = build_zip({"cat/in/1.png": A, "cat/out/2.png": B, "dog/in/3.png": C, "dog/out/4.png": D})
    first, second = (
        digest_of(deep, options=parse_reading_option_texts({"classes": f"level:{at}"}))
        for at in (1, 2)
    )
    assert first == digest_of(data) != second


def test_rows_of_arrays_have_one_digest_however_they_are_packed_and_ordered(
    digest_of: Digest,
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 7, 3), np.uint8)
    labels = ["a", "b", "a", "b", "a", "b"]
    known = digest_of(build_npz(images, labels))
    order = [3, 1, 0, 5, 4, 2]
    assert digest_of(build_npz(images, labels, packed=False)) == known
    assert digest_of(build_npz(images[order], [labels[i] for i in order])) == known
    assert digest_of(build_npz(images, labels[::-1])) != known
    assert digest_of(build_npz(images.reshape(6, 7, 9, 3), labels)) != known


def test_large_arrays_are_hashed_in_blocks_row_by_row(digest_of: Digest) -> None:
    images = np.random.default_rng(0).integers(
        0, 256, (7, 500, 333, 3), np.uint8
    )  # rows of half a block
    labels = ["a", "b"] * 3 + ["a"]
    order = [6, 5, 4, 3, 2, 1, 0]
    known = digest_of(build_npz(images, labels, packed=False))
    assert digest_of(build_npz(images[order], [labels[i] for i in order])) == known


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_file_that_is_damaged_is_another_image(method: int, digest_of: Digest) -> None:
    files = {
        f"{label}/{i}.png": draw_png(100 * at + i)
        for at, label in enumerate(("cat", "dog"))
        for i in range(40)
    }
    data = bytearray(build_zip(files, method))
    at = data.index(b"IDAT") if method == zipfile.ZIP_STORED else data.index(b"cat/0.png") + 60
    data[at + 8] ^= 0x55
    assert digest_of(bytes(data)) != digest_of(build_zip(files, method))
