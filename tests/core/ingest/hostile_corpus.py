"""Archives, honest and hostile, built byte by byte: writers that refuse nothing.

`hostile()` lists every attack with the error that must answer it; the unit tests and the end-to-end
tests send the same corpus.
"""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

ZIP, TAR, GZIP, NPZ = (
    "application/zip",
    "application/x-tar",
    "application/gzip",
    "application/x-npz",
)


class Attack(NamedTuple):
    """name; build() → bytes; declared content type; code of the error; text that the
    message names.
    """

    name: str
    build: Callable[[], bytes]
    content_type: str
    code: str
    entry: str


def draw_png(
    seed: int = 0, size: tuple[int, int] = (8, 8), mode: str = "RGB", file_format: str = "PNG"
) -> bytes:
    """Draw a small picture of noise as PNG."""
    rng = np.random.default_rng(seed)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(out, file_format)
    return out.getvalue()


def draw_pictures(
    per_class: int = 4, classes: Iterable[str] = ("cat", "dog"), top: str = ""
) -> dict[str, bytes]:
    """Draw pictures as {path: PNG} with the paths `<top><class>/<i>.png`."""
    return {
        f"{top}{label}/{i}.png": draw_png(choose_seed(label, i))
        for label in classes
        for i in range(per_class)
    }


def choose_seed(label: str, i: int) -> int:
    return zlib.crc32(f"{label}/{i}".encode())


def build_zip(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            # A fixed date: with the current time, the same input would never be made twice.
            info = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            info.external_attr = 0o600 << 16
            archive.writestr(info, data, method)
    return out.getvalue()


@dataclass
class Entry:
    """One zip entry; every field may lie. `at`: header offset to declare instead of the
    true one.
    """

    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    mode: int = 0o100644
    packed: int | None = None
    size: int | None = None
    crc: int | None = None
    extra: bytes = b""
    local_name: bytes | None = None
    local_size: int | None = None
    local_method: int | None = None
    local_crc: int | None = None
    at: int | None = None
    no_local: bool = False
    stream: bytes = field(init=False)

    def __post_init__(self) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        self.stream = packer.compress(self.data) + packer.flush() if self.method == 8 else self.data


def build_raw_zip(
    entries: list[Entry],
    *,
    count: int | None = None,
    directory_size: int | None = None,
    directory_shift: int = 0,
    comment: bytes = b"",
) -> bytes:
    """Build a zip of exactly these entries, true or not."""
    out, central = bytearray(), bytearray()
    for e in entries:
        at = len(out) if e.at is None else e.at
        packed = len(e.stream) if e.packed is None else e.packed
        size = len(e.data) if e.size is None else e.size
        crc = zlib.crc32(e.data) if e.crc is None else e.crc
        if not e.no_local:
            name = e.name if e.local_name is None else e.local_name
            method = e.method if e.local_method is None else e.local_method
            out += struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, e.flags, method, 0, 33,
                               crc if e.local_crc is None else e.local_crc, packed,
                               size if e.local_size is None else e.local_size, len(name), 0)  # fmt: skip
            out += name + e.stream
        central += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 0x314, 20, e.flags, e.method, 0, 33, crc, packed, size,
                               len(e.name), len(e.extra), 0, 0, 0, e.mode << 16, at)  # fmt: skip
        central += e.name + e.extra
    offset, n = len(out), len(entries) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, n & 0xFFFF, n & 0xFFFF,
                      len(central) if directory_size is None else directory_size,
                      offset + directory_shift, len(comment))  # fmt: skip
    return bytes(out + central + end + comment)


def build_good_entries() -> list[Entry]:
    return [Entry(name.encode(), data) for name, data in draw_pictures().items()]


def build_zip_with_entries(*entries: Entry) -> bytes:
    return build_raw_zip([*build_good_entries(), *entries])


def build_overlapping_zip() -> bytes:
    """Build a zip in which two directory entries share one local entry's bytes."""
    data = draw_png(1)
    return build_raw_zip(
        [Entry(b"cat/0.png", data), Entry(b"cat/1.png", data, at=0, no_local=True)]
    )


def build_shared_data_zip() -> bytes:
    data = draw_png(1)
    entries = [Entry(b"cat/0.png", data), Entry(b"cat/1.png", data)]
    # The second entry's local header lies within the data of the third, which spans both.
    inner = struct.pack(
        "<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data), 10, 0
    )
    outer = b"\x89PNG" + inner + b"cat/in.png" + data
    start = sum(30 + len(e.name) + len(e.data) for e in entries)
    inner_at = start + 30 + len(b"cat/ou.png") + 4
    return build_raw_zip(
        [
            *entries,
            Entry(b"cat/ou.png", outer),
            Entry(b"cat/in.png", data, at=inner_at, no_local=True),
        ]
    )


def build_quoted_overlap_zip(count: int = 40) -> bytes:
    """Build a zip in which each local header is quoted as stored deflate data of the one before,
    so that one kernel has many outputs.
    """
    kernel = Entry(b"cat/k.png", bytes(1 << 20), method=8)
    name = [f"cat/{i:03}.png".encode() for i in range(count)]
    body = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 33, zlib.crc32(kernel.data), len(kernel.stream),
                       len(kernel.data), len(kernel.name), 0) + kernel.name + kernel.stream  # fmt: skip
    heads: list[tuple[bytes, bytes, int, int]] = [
        (kernel.name, body, len(kernel.stream), len(kernel.data))
    ]
    plain = kernel.data
    for label in name:
        previous = heads[-1][1]
        quoted = previous[: 30 + len(heads[-1][0])]
        stream = (
            struct.pack("<BHH", 0, len(quoted), len(quoted) ^ 0xFFFF)
            + quoted
            + previous[len(quoted) :]
        )
        plain = quoted + plain
        head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 33, zlib.crc32(plain), len(stream),
                           len(plain), len(label), 0) + label  # fmt: skip
        heads.append((label, head + stream, len(stream), len(plain)))
    whole = heads[-1][1]
    central = b""
    at = 0
    for label, block, packed, size in reversed(heads):
        at = len(whole) - len(block)
        crc = struct.unpack_from("<L", block, 14)[0]
        central += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 0x314, 20, 0, 8, 0, 33, crc, packed, size, len(label),
                               0, 0, 0, 0, 0o100644 << 16, at) + label  # fmt: skip
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, len(heads), len(heads), len(central), len(whole), 0
    )
    return whole + central + end


def build_zip64_records(
    *, total: int, size: int, offset: int, where: int, pad: bytes = b""
) -> bytes:
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, total, total, size, offset)
    return record + pad + struct.pack("<4sLQL", b"PK\x06\x07", 0, where, 1)


def build_zip64(*, lie_total: int | None = None, where_shift: int = 0, pad: bytes = b"") -> bytes:
    """Build a zip in zip64 form, which is honest unless `lie_total` or `where_shift` is set."""
    plain = build_raw_zip(build_good_entries())
    size, offset = struct.unpack_from("<2L", plain, len(plain) - 10)
    count = len(build_good_entries())
    records = build_zip64_records(total=lie_total or count, size=size, offset=offset,
                            where=offset + size + where_shift, pad=pad)  # fmt: skip
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[: offset + size] + records + end


def build_million_empty_entries() -> bytes:
    """Build a zip of a million empty entries that share one local header, declared in zip64."""
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    record = (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
        + b"a"
    )
    central = record * 1_000_000
    records = build_zip64_records(
        total=1_000_000, size=len(central), offset=len(head), where=len(head) + len(central)
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return head + central + records + end


def build_million_hidden_entries() -> bytes:
    """Build a zip of a million entries, of which the end record gives the count modulo 65,536."""
    record = (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
        + b"a"
    )
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    central = record * 1_000_000
    n = 1_000_000 & 0xFFFF
    return (
        head
        + central
        + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, n, n, len(central), len(head), 0)
    )


def build_zip_bomb() -> bytes:
    return build_zip_with_entries(Entry(b"cat/bomb.png", bytes(8 << 20), method=8))


def build_spread_bomb() -> bytes:
    """Build a zip of entries each below the floor of the single ratio, which together are a bomb."""
    return build_raw_zip(
        [Entry(f"cat/{i}.png".encode(), bytes(250_000), method=8) for i in range(200)]
    )


def build_nested_zip() -> bytes:
    return build_zip_with_entries(Entry(b"cat/inner.zip", build_zip(draw_pictures(1))))


def build_npy(array: "np.ndarray") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def build_npz(arrays: dict[str, bytes | np.ndarray], method: int = zipfile.ZIP_STORED) -> bytes:
    """Build an npz, in which members given as bytes are stored as they are."""
    return build_zip(
        {f"{k}.npy": v if isinstance(v, bytes) else build_npy(v) for k, v in arrays.items()}, method
    )


def build_good_arrays(n: int = 20) -> dict[str, bytes | np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8),
        "labels": np.arange(n) % 2,
    }


def build_npz_with_pickled_labels() -> bytes:
    return build_npz(build_good_arrays() | {"labels": np.array([{"a": 1}] * 20, dtype=object)})


def build_npz_with_pickled_extra() -> bytes:
    return build_npz(build_good_arrays() | {"extra": np.array([{"a": 1}], dtype=object)})


def build_npz_with_bare_pickle() -> bytes:
    return build_npz(
        build_good_arrays()
        | {"labels": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07evil\x94."}
    )


def build_npz_with_lying_header() -> bytes:
    images = build_npy(build_good_arrays()["images"]).replace(b"(20, 8, 8, 3)", b"(99, 8, 8, 3)")  # type: ignore[arg-type]
    return build_npz(build_good_arrays() | {"images": images, "labels": np.zeros(99, np.int64)})


def build_tar_header(
    name: bytes, size: int, kind: bytes = b"0", link: bytes = b"", raw_size: bytes | None = None
) -> bytes:
    """Build a ustar header with a true checksum."""
    block = bytearray(512)
    block[:100] = name.ljust(100, b"\0")[:100]
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136] = raw_size if raw_size is not None else f"{size:011o}\0".encode()
    block[136:148], block[148:156], block[156:157] = b"00000000000\0", b" " * 8, kind
    block[157:257] = link.ljust(100, b"\0")
    block[257:265] = b"ustar\x0000"
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def build_tar_entry(name: bytes, data: bytes, kind: bytes = b"0") -> bytes:
    return build_tar_header(name, len(data), kind) + data + bytes(-len(data) % 512)


def build_tar(files: dict[str, bytes], *more: bytes) -> bytes:
    return (
        b"".join(build_tar_entry(n.encode(), d) for n, d in files.items())
        + b"".join(more)
        + bytes(1024)
    )


def build_pax_entry(records: dict[str, str], kind: bytes = b"x") -> bytes:
    body = b""
    for key, value in records.items():
        record = f" {key}={value}\n".encode()
        length = len(record) + 1
        while len(str(length)) + len(record) != length:
            length = len(str(length)) + len(record)
        body += str(length).encode() + record
    return build_tar_entry(b"pax", body, kind)


def make_tar_builder(*more: bytes) -> Callable[[], bytes]:
    return lambda: build_tar(draw_pictures(), *more)


def build_gzip_bomb() -> bytes:
    return gzip.compress(
        build_tar(draw_pictures(), build_tar_entry(b"cat/bomb.png", bytes(16 << 20))), 9
    )


def _make_zip_builder(name: bytes, **fields: object) -> Callable[[], bytes]:
    return lambda: build_zip_with_entries(Entry(name, draw_png(5), **fields))  # type: ignore[arg-type]


def list_attacks() -> list[Attack]:
    """Return every attack."""
    refused, large, invalid = "archive-hostile", "archive-too-large", "archive-invalid"
    lying = Entry(b"cat/lie.png", draw_png(1) * 40, method=8, size=9000)
    over = Entry(b"cat/over.png", draw_png(1), packed=1 << 20, size=1 << 20)
    symlink, fifo = 0o120777, 0o010644
    return [
        Attack("path traversal", _make_zip_builder(b"cat/../../evil.png"), ZIP, refused, "evil.png"),
        Attack("traversal at the end", _make_zip_builder(b"cat/.."), ZIP, refused, "cat/.."),
        Attack("absolute name", _make_zip_builder(b"/etc/cat.png"), ZIP, refused, "/etc/cat.png"),
        Attack("drive name", _make_zip_builder(b"C:cat/evil.png"), ZIP, refused, "C:cat/evil.png"),
        Attack("backslash name", _make_zip_builder(b"cat\\..\\evil.png"), ZIP, refused, "evil.png"),
        Attack("NUL in a name", _make_zip_builder(b"cat/a.png\0.exe"), ZIP, refused, "a.png\\x00.exe"),
        Attack("control character", _make_zip_builder(b"cat/a\x1b[2J.png"), ZIP, refused, "a\\x1b[2J.png"),
        Attack("long name", _make_zip_builder(b"cat/" + b"x" * 2000), ZIP, refused, "cat/xxx"),
        Attack("deep name", _make_zip_builder(b"d/" * 60 + b"x.png"), ZIP, refused, "d/d/d"),
        Attack("false UTF-8", _make_zip_builder(b"cat/\xff\xfe.png", flags=1 << 11), ZIP, refused, "cat/ÿþ"),
        Attack("symbolic "
            "link", _make_zip_builder(b"cat/link.png", mode=symlink), ZIP, refused, "cat/link.png"),
        Attack("pipe", _make_zip_builder(b"cat/fifo.png", mode=fifo), ZIP, refused, "cat/fifo.png"),
        Attack("nested archive", build_nested_zip, ZIP, refused, "cat/inner.zip"),
        Attack("nested archive, "
            "renamed", lambda: build_zip_with_entries(Entry(b"cat/i.png", build_zip(draw_pictures(1)))), ZIP,
               refused, "cat/i.png"),
        Attack("nested archive, "
            "deflated", lambda: build_zip_with_entries(Entry(b"cat/i.png", gzip.compress(b"x"), method=8)),
               ZIP, refused, "cat/i.png"),
        Attack("overlapping entries", build_overlapping_zip, ZIP, refused, "cat/1.png"),
        Attack("entry within an entry", build_shared_data_zip, ZIP, refused, "cat/in.png"),
        Attack("quoted overlap", build_quoted_overlap_zip, ZIP, refused, "cat/"),
        Attack("bomb", build_zip_bomb, ZIP, refused, "cat/bomb.png"),
        Attack("bomb in pieces", build_spread_bomb, ZIP, refused, "100:1"),
        Attack("size too small", lambda: build_zip_with_entries(lying), ZIP, refused, "cat/lie.png"),
        Attack("size too "
            "large", _make_zip_builder(b"cat/big.png", method=8, size=100_000), ZIP, refused, "cat/big.png"),
        Attack("stored with two "
            "sizes", _make_zip_builder(b"cat/two.png", size=77, local_size=77), ZIP, refused, "two.png"),
        Attack("beyond the archive", lambda: build_zip_with_entries(over), ZIP, refused, "cat/over.png"),
        Attack("offset beyond", _make_zip_builder(b"cat/off.png", at=1 << 30), ZIP, refused, "cat/off.png"),
        Attack("offset at no entry", _make_zip_builder(b"cat/off.png", at=7), ZIP, refused, "cat/off.png"),
        Attack("duplicate name", _make_zip_builder(b"cat/0.png"), ZIP, refused, "cat/0.png"),
        Attack("duplicate after cleaning", _make_zip_builder(b"cat/./0.png"), ZIP, refused, "cat/0.png"),
        Attack("duplicate in NFC", lambda: build_zip_with_entries(Entry("cat/\u00e9.png".encode(), draw_png(7)),
                                                      Entry("cat/e\u0301.png".encode(), draw_png(8))), ZIP,
                                                          refused, "cat/"),
        Attack("other local "
            "name", _make_zip_builder(b"cat/x.png", local_name=b"dog/x.png"), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "size", _make_zip_builder(b"cat/x.png", local_size=5), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "method", _make_zip_builder(b"cat/x.png", local_method=8), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "checksum", _make_zip_builder(b"cat/x.png", local_crc=5), ZIP, refused, "cat/x.png"),
        Attack("encrypted", _make_zip_builder(b"cat/x.png", flags=1), ZIP, refused, "cat/x.png"),
        Attack("unknown packing", _make_zip_builder(b"cat/x.png", method=14), ZIP, refused, "cat/x.png"),
        Attack("two zip64 "
            "fields", _make_zip_builder(b"cat/x.png", extra=struct.pack("<2H", 1, 0) * 2), ZIP, refused, "x.png"),
        Attack("zip64 field too "
            "short", _make_zip_builder(b"cat/x.png", size=0xFFFFFFFF, extra=struct.pack("<2H", 1, 0)), ZIP,
               refused, "x.png"),
        Attack("extra field too "
            "long", _make_zip_builder(b"cat/x.png", extra=struct.pack("<2H", 9, 99)), ZIP, refused, "x.png"),
        Attack("folder with bytes", _make_zip_builder(b"cat/sub/"), ZIP, refused, "cat/sub"),
        Attack("a million empty entries", build_million_empty_entries, ZIP, large, "1000000"),
        Attack("a million entries hidden", build_million_hidden_entries, ZIP, refused + "|" + large, "director"),
        Attack("too few entries "
            "declared", lambda: build_raw_zip(build_good_entries(), count=3), ZIP, refused, "entries"),
        Attack("too many entries "
            "declared", lambda: build_raw_zip(build_good_entries(), count=9), ZIP, refused, "entries"),
        Attack("directory "
            "elsewhere", lambda: build_raw_zip(build_good_entries(), directory_shift=5), ZIP, refused, "directory"),
        Attack("second end record", lambda: build_raw_zip(build_good_entries(), comment=build_raw_zip([])), ZIP,
               refused + "|" + invalid, "end-of-directory|no labelled"),
        Attack("zip64 locator astray", lambda: build_zip64(where_shift=-9), ZIP, refused, "locator"),
        Attack("gap after zip64 record", lambda: build_zip64(pad=b"x" * 40), ZIP, refused, "locator"),
        Attack("zip64 count", lambda: build_zip64(lie_total=5), ZIP, refused, "entries"),
        Attack("cut off", lambda: build_zip(draw_pictures())[:-30], ZIP, invalid, "cut off"),
        Attack("appended bytes", lambda: build_zip(draw_pictures()) + b"x", ZIP, invalid, "follows"),
        Attack("nothing but the end", lambda: build_raw_zip([]), ZIP, invalid, "labelled images"),
        Attack("pickled labels", build_npz_with_pickled_labels, NPZ, refused, "labels.npy"),
        Attack("pickle beside", build_npz_with_pickled_extra, NPZ, refused, "extra.npy"),
        Attack("bare pickle", build_npz_with_bare_pickle, NPZ, refused, "labels.npy"),
        Attack("lying npy header", build_npz_with_lying_header, NPZ, refused, "images.npy"),
        Attack("npz bomb", lambda: build_npz({"images": np.zeros((2000, 32, 32, 3), np.uint8),
                                        "labels": np.zeros(2000, np.int64)}, 8), NPZ, refused, "images.npy"),
        Attack("tar traversal", make_tar_builder(build_tar_entry(b"cat/../../evil", b"x")), TAR, refused, "evil"),
        Attack("tar absolute", make_tar_builder(build_tar_entry(b"/etc/passwd", b"x")), TAR, refused, "/etc/passwd"),
        Attack("tar symbolic "
            "link", make_tar_builder(build_tar_header(b"cat/l", 0, b"2", b"/etc/passwd")), TAR, refused, "cat/l"),
        Attack("tar hard "
            "link", make_tar_builder(build_tar_header(b"cat/l", 0, b"1", b"cat/0.png")), TAR, refused, "cat/l"),
        Attack("tar device", make_tar_builder(build_tar_header(b"cat/dev", 0, b"3")), TAR, refused, "cat/dev"),
        Attack("tar pipe", make_tar_builder(build_tar_header(b"cat/fifo", 0, b"6")), TAR, refused, "cat/fifo"),
        Attack("tar sparse", make_tar_builder(build_tar_header(b"cat/s", 0, b"S")), TAR, refused, "cat/s"),
        Attack(
            "pax sparse",
            make_tar_builder(build_pax_entry({"GNU.sparse.major": "1"}), build_tar_entry(b"cat/s", b"x")),
            TAR,
            refused,
            "cat/s",
        ),
        Attack("pax path", make_tar_builder(build_pax_entry({"path": "../../evil"}),
            build_tar_entry(b"cat/ok", b"x")), TAR, refused, "evil"),
        Attack("pax huge "
            "header", make_tar_builder(build_tar_header(b"pax", 1 << 33, b"x")), TAR, refused, "8589934592"),
        Attack("pax global path", make_tar_builder(build_pax_entry({"path": "x"}, b"g")), TAR, refused, "global"),
        Attack("tar negative "
            "size", make_tar_builder(build_tar_header(b"cat/n", 0, raw_size=b"\xff" * 12)), TAR, refused, "negative"),
        Attack("tar lying size", make_tar_builder(build_tar_header(b"cat/lie", 1 << 30)), TAR, refused, "cat/lie"),
        Attack("tar huge "
            "size", make_tar_builder(build_tar_header(b"cat/huge", 0,
                raw_size=b"\x80" + bytes(5) + b"\x10" + bytes(5))),
               TAR, large + "|" + refused, "cat/huge"),
        Attack("tar duplicate", make_tar_builder(build_tar_entry(b"./cat/0.png", draw_png(3))), TAR, refused,
            "cat/0.png"),
        Attack("tar nested", make_tar_builder(build_tar_entry(b"cat/i.png", build_zip(draw_pictures(1)))),
            TAR, refused, "cat/i.png"),
        Attack("tar damaged", lambda: build_tar(draw_pictures())[:512] + b"y" * 5000, TAR,
            invalid + "|" + refused, "cat/0.png"),
        Attack("tar after a "
            "tar", lambda: build_tar(draw_pictures()) + build_tar({"../evil.png": draw_png()}), TAR, refused, "evil"),
        Attack("tar twice", lambda: build_tar(draw_pictures()) * 2, TAR, refused, "cat/0.png"),
        Attack("tar and something "
            "else", lambda: build_tar(draw_pictures()) + bytes(9000) + b"x" * 512, TAR, invalid, "no tar"),
        Attack("gzip of zeros after a "
            "tar", lambda: gzip.compress(build_tar(draw_pictures(1)) + bytes(32 << 20), 9), GZIP, refused,
               "unpacks to more"),
        Attack("gzip bomb", build_gzip_bomb, GZIP, refused, "cat/bomb.png"),
        Attack("gzip cut "
            "off", lambda: gzip.compress(build_tar(draw_pictures()))[:-500], GZIP, invalid, "early"),
        Attack("gzip of tiny "
            "streams", lambda: gzip.compress(build_tar(draw_pictures())[:100]) + gzip.compress(b"") * 5000, GZIP,
               refused + "|" + invalid, "tiny"),
        Attack("gzip of something "
            "else", lambda: gzip.compress(b"hello" * 500), GZIP, invalid, "tar"),
        Attack("empty body", lambda: b"", ZIP, invalid, "empty"),
        Attack("wrong content "
            "type", lambda: build_zip(draw_pictures()), TAR, "unsupported-type", "zip"),
        Attack("no archive", lambda: b"GIF89a" + bytes(600), ZIP, "unsupported-type", "single picture"),
        Attack("a picture", lambda: draw_png(), "image/png", "unsupported-type", "image/png"),
    ]  # fmt: skip
