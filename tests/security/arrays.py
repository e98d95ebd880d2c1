"""npz files that attack: pickles, headers that lie, shapes and types that no reader should meet."""

import zipfile

import numpy as np

from tests.core.ingest.hostile_corpus import NPZ, good_arrays, honest_zip, npy, npz
from tests.security.archives import HOSTILE, INVALID, LABELS, LARGE
from tests.security.case import Case


def cases() -> list[Case]:
    """All npz files beyond those of `hostile_corpus`."""
    images, labels = good_arrays()["images"], good_arrays()["labels"]
    assert isinstance(images, np.ndarray) and isinstance(labels, np.ndarray)
    return [
        _with("labels of an object array in Fortran "
            "order", labels=_npy("|O", "(20,)", bytes(160), "True")),
        _with("images of type object", images=_npy("|O", "(20, 8, 8, 3)", bytes(20 * 192))),
        _with("structured type", INVALID,
              labels=_raw("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (20,), "
                  "}", bytes(160))),
        _with("nested object in a structured type", INVALID, HOSTILE,
              labels=_raw("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (20,), "
                  "}", bytes(160))),
        _with("header with a call", INVALID,
              labels=_raw("{'descr': __import__('os').system('id'), 'shape': (20,)}", bytes(160))),
        _with("header of nested brackets", INVALID, labels=_raw("{" + "(" * 900, bytes(160))),
        _with("header of 60,000 bytes", INVALID, labels=_raw(" " * 60_000, bytes(160))),
        _with("header longer than the member", INVALID, labels=b"\x93NUMPY\x01\x00\xff\xff{}"),
        _with("header of 4 GiB", INVALID, labels=b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"),
        _with("npy version 9", INVALID, labels=b"\x93NUMPY\x09\x00" + npy(labels)[8:]),
        _with("magic alone", HOSTILE, INVALID, labels=b"\x93NUMPY"),
        _with("empty member", HOSTILE, labels=b""),
        _with("Fortran order", INVALID, images=npy(np.asfortranarray(images))),
        _with("shape with a negative "
            "side", INVALID, images=_npy("|u1", "(20, -8, 8, 3)", bytes(20 * 192))),
        _with("two negative "
            "sides", INVALID, images=_npy("|u1", "(-20, -8, 8, 3)", bytes(20 * 192))),
        _with("shape of 2^60", INVALID, images=_npy("|u1", "(1152921504606846976, 8, 8, "
            "3)", bytes(192))),
        _with("sides whose product is 2^64", images=_npy("|u1", "(65536, 65536, 65536, "
            "65536)", b"")),
        _with("shape of a number of 20 digits", INVALID, images=_npy("|u1", "(99999999999999999999, 1, 1)", bytes(9))),
        _with("shape of 40 sides", INVALID, images=_npy("|u1", "(" + "1, " * 40 + ")", bytes(1))),
        _with("shape of a tuple in a "
            "tuple", INVALID, images=_npy("|u1", "((20, 8), 8, 3)", bytes(9))),
        _with("no pixels", LARGE, images=np.zeros((20, 0, 8, 3), np.uint8)),
        _with("images of one row of 40,000 "
            "pixels", LARGE, images=np.zeros((1, 1, 40_000), np.uint8),
              labels=np.zeros(1, np.int64)),
        _with("images of one number", INVALID, images=np.uint8(7)),
        _with("images of 5 channels", INVALID, images=np.zeros((20, 8, 8, 5), np.uint8)),
        _with("float images with NaN", INVALID, images=np.full((20, 8, 8, 3), np.nan, np.float32)),
        _with("bool images", INVALID, images=np.zeros((20, 8, 8, 3), bool)),
        _with("signed images", INVALID, images=np.zeros((20, 8, 8, 3), np.int8)),
        _with("float labels with NaN", LABELS, labels=np.full(20, np.nan)),
        _with("complex labels", INVALID, LABELS, labels=np.zeros(20, np.complex128)),
        _with("date labels", INVALID, LABELS, labels=np.zeros(20, "M8[s]")),
        _with("labels of another length", LABELS, labels=np.zeros(19, np.int64)),
        _with("labels of two dimensions", LABELS, labels=np.zeros((20, 1), np.int64)),
        _with("one label for all", LABELS, labels=np.int64(3)),
        _with("labels of no width", LABELS, INVALID, HOSTILE, labels=_npy("<U0", "(20,)", b"")),
        _with("label code beyond Unicode", LABELS, labels=_npy("<U1", "(20,)", b"\xff" * 80)),
        _with("label of a surrogate", LABELS, labels=_npy("<U1", "(20,)", b"\x00\xd8\0\0" * 20)),
        _with("label with NUL inside", LABELS, labels=np.array(["a\0b"] * 20)),
        _with("label of blanks", LABELS, labels=np.array(["  "] * 20)),
        _with("label of a formula", "202", labels=np.array(["=1+1", "@SUM(A1)"] * 10)),
        _with("label with bidi override", LABELS, labels=np.array(["a\u202eb", "c"] * 10)),
        _with("labels of 999,999 characters "
            "each", LARGE, LABELS, HOSTILE, labels=np.zeros(20, "U999999"), method=8),
        _with("bytes that are not UTF-8", LABELS, labels=np.array([b"\xff\xfe"] * 20)),
        _with("class numbers beyond the names", LABELS, classes=np.array(["cat"])),
        _with("negative class "
            "numbers", LABELS, classes=np.array(["cat", "dog"]), labels=-np.ones(20, np.int64)),
        _with("names that are a pickle", classes=np.array([{"a": 1}], dtype=object)),
        _with("test images without labels", INVALID, test_images=images),
        _with("test images of another size", INVALID, test_images=np.zeros((2, 9, 9, 3), np.uint8),
              test_labels=np.zeros(2, np.int64)),
        _case("labels twice", lambda: _twice(), HOSTILE),
        _case("no labels", lambda: npz({"images": images}), INVALID),
        _case("a picture as npz", lambda: honest_zip({"cat/a.png": b"x"}), INVALID),
        _case("rows beyond the limit", lambda: npz({"images": np.zeros((500_001, 1, 1), np.uint8),
                                                    "labels": np.zeros(500_001, np.uint8)}), LARGE),
        _case("member name that climbs",
              lambda: honest_zip({"../images.npy": npy(images), "labels.npy": npy(labels)}), HOSTILE),
    ]  # fmt: skip


def _with(
    name: str, *answers: str, method: int = zipfile.ZIP_STORED, **changed: "bytes | np.ndarray"
) -> Case:
    return _case(name, lambda: npz(good_arrays() | changed, method), *(answers or (HOSTILE,)))


def _case(name, build, *answers: str) -> Case:
    return Case("arrays", f"npz: {name}", build, answers, headers={"Content-Type": NPZ})


def _npy(descr: str, shape: str, data: bytes, fortran: str = "False") -> bytes:
    return _raw(f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}", data)


def _raw(header: str, data: bytes) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def _twice() -> bytes:
    plain = npz(good_arrays() | {"labelz": np.zeros(20, np.int64)})
    return plain.replace(b"labelz.npy", b"labels.npy")
