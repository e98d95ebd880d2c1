"""npz files that attack: pickles, headers that lie, shapes and types that no reader should meet."""

import zipfile

import numpy as np

from tests.core.ingest.hostile_corpus import NPZ, build_good_arrays, build_npy, build_npz, build_zip
from tests.security.archives import HOSTILE, INVALID, LABELS, LARGE
from tests.security.case import Case


def list_cases() -> list[Case]:
    """Return all cases of npz files, except those of `hostile_corpus`."""
    images, labels = build_good_arrays()["images"], build_good_arrays()["labels"]
    assert isinstance(images, np.ndarray) and isinstance(labels, np.ndarray)
    return [
        _make_npz_case("labels of an object array in Fortran "
            "order", labels=_build_npy("|O", "(20,)", bytes(160), "True")),
        _make_npz_case("images of type object", images=_build_npy("|O", "(20, 8, 8, 3)", bytes(20 * 192))),
        _make_npz_case("structured type", INVALID,
              labels=_build_raw_npy("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (20,), "
                  "}", bytes(160))),
        _make_npz_case("nested object in a structured type", INVALID, HOSTILE,
              labels=_build_raw_npy("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (20,), "
                  "}", bytes(160))),
        _make_npz_case("header with a call", INVALID,
              labels=_build_raw_npy("{'descr': __import__('os').system('id'), 'shape': (20,)}", bytes(160))),
        _make_npz_case("header of nested brackets", INVALID, labels=_build_raw_npy("{" + "(" * 900, bytes(160))),
        _make_npz_case("header of 60,000 bytes", INVALID, labels=_build_raw_npy(" " * 60_000, bytes(160))),
        _make_npz_case("header longer than the member", INVALID, labels=b"\x93NUMPY\x01\x00\xff\xff{}"),
        _make_npz_case("header of 4 GiB", INVALID, labels=b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"),
        _make_npz_case("npy version 9", INVALID, labels=b"\x93NUMPY\x09\x00" + build_npy(labels)[8:]),
        _make_npz_case("magic alone", HOSTILE, INVALID, labels=b"\x93NUMPY"),
        _make_npz_case("empty member", HOSTILE, labels=b""),
        _make_npz_case("Fortran order", INVALID, images=build_npy(np.asfortranarray(images))),
        _make_npz_case("shape with a negative "
            "side", INVALID, images=_build_npy("|u1", "(20, -8, 8, 3)", bytes(20 * 192))),
        _make_npz_case("two negative "
            "sides", INVALID, images=_build_npy("|u1", "(-20, -8, 8, 3)", bytes(20 * 192))),
        _make_npz_case("shape of 2^60", INVALID, images=_build_npy("|u1", "(1152921504606846976, 8, 8, "
            "3)", bytes(192))),
        _make_npz_case("sides whose product is 2^64", images=_build_npy("|u1", "(65536, 65536, 65536, "
            "65536)", b"")),
        _make_npz_case("shape of a number of 20 digits", INVALID,
            images=_build_npy("|u1", "(99999999999999999999, 1, 1)", bytes(9))),
        _make_npz_case("shape of 40 sides", INVALID, images=_build_npy("|u1", "(" + "1, " * 40 + ")", bytes(1))),
        _make_npz_case("shape of a tuple in a "
            "tuple", INVALID, images=_build_npy("|u1", "((20, 8), 8, 3)", bytes(9))),
        _make_npz_case("no pixels", LARGE, images=np.zeros((20, 0, 8, 3), np.uint8)),
        _make_npz_case("images of one row of 40,000 "
            "pixels", LARGE, images=np.zeros((1, 1, 40_000), np.uint8),
              labels=np.zeros(1, np.int64)),
        _make_npz_case("images of one number", INVALID, images=np.uint8(7)),
        _make_npz_case("images of 5 channels", INVALID, images=np.zeros((20, 8, 8, 5), np.uint8)),
        _make_npz_case("float images with NaN", INVALID, images=np.full((20, 8, 8, 3), np.nan, np.float32)),
        _make_npz_case("bool images", INVALID, images=np.zeros((20, 8, 8, 3), bool)),
        _make_npz_case("signed images", INVALID, images=np.zeros((20, 8, 8, 3), np.int8)),
        _make_npz_case("float labels with NaN", LABELS, labels=np.full(20, np.nan)),
        _make_npz_case("complex labels", INVALID, LABELS, labels=np.zeros(20, np.complex128)),
        _make_npz_case("date labels", INVALID, LABELS, labels=np.zeros(20, "M8[s]")),
        _make_npz_case("labels of another length", LABELS, labels=np.zeros(19, np.int64)),
        _make_npz_case("labels of two dimensions", LABELS, labels=np.zeros((20, 1), np.int64)),
        _make_npz_case("one label for all", LABELS, labels=np.int64(3)),
        _make_npz_case("labels of no width", LABELS, INVALID, HOSTILE, labels=_build_npy("<U0", "(20,)", b"")),
        _make_npz_case("label code beyond Unicode", LABELS, labels=_build_npy("<U1", "(20,)", b"\xff" * 80)),
        _make_npz_case("label of a surrogate", LABELS, labels=_build_npy("<U1", "(20,)", b"\x00\xd8\0\0" * 20)),
        _make_npz_case("label with NUL inside", LABELS, labels=np.array(["a\0b"] * 20)),
        _make_npz_case("label of blanks", LABELS, labels=np.array(["  "] * 20)),
        _make_npz_case("label of a formula", "202", labels=np.array(["=1+1", "@SUM(A1)"] * 10)),
        _make_npz_case("label with bidi override", LABELS, labels=np.array(["a\u202eb", "c"] * 10)),
        _make_npz_case("labels of 999,999 characters "
            "each", LARGE, LABELS, HOSTILE, labels=np.zeros(20, "U999999"), method=8),
        _make_npz_case("bytes that are not UTF-8", LABELS, labels=np.array([b"\xff\xfe"] * 20)),
        _make_npz_case("class numbers beyond the names", LABELS, classes=np.array(["cat"])),
        _make_npz_case("negative class "
            "numbers", LABELS, classes=np.array(["cat", "dog"]), labels=-np.ones(20, np.int64)),
        _make_npz_case("names that are a pickle", classes=np.array([{"a": 1}], dtype=object)),
        _make_npz_case("test images without labels", INVALID, test_images=images),
        _make_npz_case("test images of another size", INVALID, test_images=np.zeros((2, 9, 9, 3), np.uint8),
              test_labels=np.zeros(2, np.int64)),
        _make_case("labels twice", lambda: _build_npz_with_double(), HOSTILE),
        _make_case("no labels", lambda: build_npz({"images": images}), INVALID),
        _make_case("a picture as npz", lambda: build_zip({"cat/a.png": b"x"}), INVALID),
        _make_case("rows beyond the limit", lambda: build_npz({"images": np.zeros((500_001, 1, 1), np.uint8),
                                                    "labels": np.zeros(500_001, np.uint8)}), LARGE),
        _make_case("member name that climbs",
              lambda: build_zip({"../images.npy": build_npy(images), "labels.npy": build_npy(labels)}), HOSTILE),
    ]  # fmt: skip


def _make_npz_case(
    name: str, *answers: str, method: int = zipfile.ZIP_STORED, **changed: "bytes | np.ndarray"
) -> Case:
    return _make_case(
        name, lambda: build_npz(build_good_arrays() | changed, method), *(answers or (HOSTILE,))
    )


def _make_case(name, build, *answers: str) -> Case:
    return Case("arrays", f"npz: {name}", build, answers, headers={"Content-Type": NPZ})


def _build_npy(descr: str, shape: str, data: bytes, fortran: str = "False") -> bytes:
    return _build_raw_npy(
        f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}", data
    )


def _build_raw_npy(header: str, data: bytes) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def _build_npz_with_double() -> bytes:
    plain = build_npz(build_good_arrays() | {"labelz": np.zeros(20, np.int64)})
    return plain.replace(b"labelz.npy", b"labels.npy")
