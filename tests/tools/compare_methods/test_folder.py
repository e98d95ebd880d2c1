"""Folders of a comparison: the layouts that the client can submit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from core.ingest.images import decode_image_to_square_pixels
from tests.client.pack import sources
from tools.compare_methods.errors import ComparisonImpossible
from tools.compare_methods.folder import list_labelled_photos


@pytest.mark.parametrize(
    "write",
    [
        sources.write_class_folders,
        sources.write_imagefolder,
        sources.write_csv_list,
        sources.write_shards,
    ],
)
def test_images_of_each_layout_have_labels_and_bytes(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    photos = list_labelled_photos(write(tmp_path / "photos"))
    assert len({row.label for row in photos.rows}) >= 2
    last = len(photos.rows) - 1
    assert decode_image_to_square_pixels(photos.read_image_bytes(last), 8, 3, 1 << 20).shape == (
        8,
        8,
        3,
    )
    assert photos.read_image_bytes(0) == photos.read_image_bytes(0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04", "is an archive. A comparison takes a folder"),
        (b"text", "is of no known kind"),
    ],
)
def test_a_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(content)
    with pytest.raises(ComparisonImpossible, match=words):
        list_labelled_photos(tmp_path / "photos.zip")


def test_a_link_that_leaves_the_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere.png"
    (photos / "cat").mkdir(parents=True)
    elsewhere.write_bytes(b"")
    (photos / "cat/1.png").symlink_to(elsewhere)
    with pytest.raises(
        ComparisonImpossible,
        match=r"a link that leads out of the folder .* by copies of their files",
    ) as refused:
        list_labelled_photos(photos)
    assert "allow_outside" not in str(refused.value)
