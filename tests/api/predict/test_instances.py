"""Image files in base64 within JSON: where they lie, in one form, in base64 alone."""

import base64
import json
import random

import pytest

from api.predict import instances
from core.errors import Invalid


def build_instances_body(*files: bytes, **options: object) -> bytearray:
    told = {"instances": [{"b64": base64.b64encode(one).decode()} for one in files]}
    return bytearray(json.dumps(told, **options).encode())  # type: ignore[arg-type]


def decode_instances(body: bytes | bytearray, most: int = 256) -> list[bytes]:
    return [
        bytes(image) for image in instances.decode_base64_instances_in_place(bytearray(body), most)
    ]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 1000])
@pytest.mark.parametrize("chunk", [4, 5, 7, 256 << 10])
def test_files_come_back_as_they_were(
    size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "CHUNK", chunk)
    files = [random.Random(size + number).randbytes(size + number) for number in range(5)]
    assert decode_instances(build_instances_body(*files)) == files
    assert decode_instances(build_instances_body(*files, indent=100)) == files
    slashes = [b"\xff" * 50, b"\xfb\xff\xbf" * 7]
    assert (
        decode_instances(bytes(build_instances_body(*slashes)).replace(b"/", b"\\/")) == slashes
    )  # as PHP writes JSON


def test_the_images_are_slices_of_the_body() -> None:
    body = build_instances_body(b"a" * 10, b"b")
    assert all(image.obj is body for image in instances.decode_base64_instances_in_place(body, 2))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"instances": []}', "instances[0]: { is expected at byte 15"),
        (b'{"instances": [{"b64": "AAAA"}', "the body: ] is expected at byte 30"),
        (b'{"instances": [{"b64": "AAAA"}]} {}', "something follows"),
        (b'{"instances": [{"b64": "AAAA"},]}', "instances[1]: { is expected"),
        (b'{"instances": [{"b64": "AAAA", "name": "x"}]}', "instances[0]: } is expected"),
        (b'{"instances": [{"b64": "AAAA"}], "signature_name": ""}', "the body: } is expected"),
        (b'{"instances": [{"b64": 1}]}', 'instances[0]: " is expected'),
        (b'{"instances": [{"b64": "AAAA', "its text does not end"),
        (b'{"instances": [{"b64": "AAA"}]}', "incorrect padding"),
        (b'{"instances": [{"b64": "AA==AAAA"}]}', "excess data after padding"),
        (b'{"instances": [{"b64": "AA_-"}]}', "only base64 data is allowed"),
        (b'{"instances": [{"b64": "AA\\nAA"}]}', "only base64 data is allowed"),
        (b'{"instances": [{"b64": "\\u0041AAA"}]}', "only base64 data is allowed"),
        (
            b'{"instances": [{"b64": "data:image/png;base64,AAAA"}]}',
            "after the comma of a data: URL",
        ),
        (b'{"instances": [' + b'{"b64": ""}, ' * 2 + b'{"b64": ""}]}', "at most 2 images"),
    ],
)
def test_another_form_is_refused_and_the_place_named(body: bytes, said: str) -> None:
    assert instances.is_base64_instances_body(body)
    with pytest.raises(Invalid) as refused:
        decode_instances(body, 2)
    assert said in refused.value.detail and instances.FORM in refused.value.detail


def test_padding_within_a_text_is_refused_wherever_it_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "CHUNK", 4)
    with pytest.raises(Invalid, match="excess data"):
        decode_instances(b'{"instances": [{"b64": "AA==AAAA"}]}')


@pytest.mark.parametrize(
    "body", [b"[[[1]]]", b'{"images": []}', b"", b'{"instances"}', b'{"x": {"instances": []}}']
)
def test_other_json_is_left_to_the_decoder(body: bytes) -> None:
    assert not instances.is_base64_instances_body(body)
