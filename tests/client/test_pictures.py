"""Images of predict: files, opened files, PIL's images, and arrays."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_batches
from PIL import Image

from perennial import Perennial
from perennial.pictures import convert_arrays_to_nested_lists, convert_images_to_form_parts

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def encode_png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def open_image(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


def set_name(file: io.BytesIO, name: Any) -> io.BytesIO:
    file.name = name
    return file


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (b"bytes", "image-0"),
        (io.BytesIO(b"bytes"), "image-0"),
        (set_name(io.BytesIO(b"bytes"), "/far/away/owl.jpg"), "owl.jpg"),
        (set_name(io.BytesIO(b"bytes"), 3), "image-0"),
    ],
    ids=["bytes", "file", "named file", "file of a number"],
)
def test_files_are_read_and_keep_their_names(image: Any, name: str) -> None:
    assert convert_images_to_form_parts([image]) == [("image", (name, b"bytes"))]


def test_an_opened_file_is_read_from_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "owl.jpg").write_bytes(b"skipped|bytes")
    with (tmp_path / "owl.jpg").open("rb") as file:
        file.seek(8)
        assert convert_images_to_form_parts([file, tmp_path / "owl.jpg"]) == [
            ("image", ("owl.jpg", b"bytes")),
            ("image", ("owl.jpg", b"skipped|bytes")),
        ]


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK", "YCbCr", "HSV", "LAB"]
)
def test_a_picture_of_pil_keeps_its_pixels(mode: str) -> None:
    picture = (
        Image.new(mode, (3, 2))
        if mode in ("I;16", "LAB")
        else Image.fromarray(PIXELS).convert(mode)
    )
    parts = convert_images_to_form_parts(picture)
    assert parts is not None
    found = open_image(parts[0][1][1])
    assert parts[0][1][0] == "image-0" and found.format == "PNG"
    if mode in ("CMYK", "YCbCr", "HSV"):
        assert found.tobytes() == picture.convert("RGB").tobytes()
    elif mode != "LAB":
        assert found.tobytes() == picture.tobytes()


def test_a_picture_keeps_how_it_is_turned_and_nothing_else_of_its_exif() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG", exif=exif)
    parts = convert_images_to_form_parts([open_image(file.getvalue())])
    assert parts is not None
    assert dict(open_image(parts[0][1][1]).getexif()) == {0x0112: 6}


def test_a_picture_that_was_opened_has_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "owl.png").write_bytes(encode_png(Image.fromarray(PIXELS)))
    with Image.open(tmp_path / "owl.png") as picture:
        parts = convert_images_to_form_parts(picture)
    assert parts is not None and parts[0][1][0] == "owl.png"


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (io.StringIO("text"), "mode 'rb'"),
        ([b"bytes", [[1, 2]]], "list is among the images"),
        ([b"bytes", None], "NoneType is among the images"),
        (5, "int is no image"),
        (Image.new("F", (2, 2)), "mode 'F'"),
        (Image.new("I", (2, 2)), "mode 'I'"),
    ],
    ids=["text file", "mixed", "none", "number", "floats", "integers"],
)
def test_what_is_no_image_is_refused(images: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        convert_images_to_form_parts(images)


@pytest.mark.parametrize(
    "images", [PIXELS[None], [PIXELS], PIXELS[None].tolist()], ids=["array", "list", "lists"]
)
def test_arrays_become_numbers(images: Any) -> None:
    assert convert_images_to_form_parts(images) is None
    assert convert_arrays_to_nested_lists(images) == [PIXELS.tolist()]


def test_all_forms_of_an_image_get_the_same_answer(
    client: Perennial, archives: list[bytes], tmp_path: Path
) -> None:
    small_batches.create_taught_model(client, "forms", archives[0])
    picture = Image.fromarray(PIXELS[..., 0]).resize((8, 8))
    content = encode_png(picture)
    (tmp_path / "digit.png").write_bytes(content)
    with (tmp_path / "digit.png").open("rb") as file:
        found = client.predict("forms", [picture, file, content, tmp_path / "digit.png"], top_k=2)
    assert [one.name for one in found.predictions] == [
        "image-0",
        "digit.png",
        "image-2",
        "digit.png",
    ]
    assert len({str(one.to_dict() | {"name": None}) for one in found.predictions}) == 1
