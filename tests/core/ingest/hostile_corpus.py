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


def png(
    seed: int = 0, size: tuple[int, int] = (8, 8), mode: str = "RGB", file_format: str = "PNG"
) -> bytes:
    """A small picture of noise."""
    rng = np.random.default_rng(seed)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(out, file_format)
    return out.getvalue()


def pictures(
    per_class: int = 4, classes: Iterable[str] = ("cat", "dog"), top: str = ""
) -> dict[str, bytes]:
    """{path: PNG} of `<top><class>/<i>.png`."""
    return {
        f"{top}{label}/{i}.png": png(hash_of(label, i))
        for label in classes
        for i in range(per_class)
    }


def hash_of(label: str, i: int) -> int:
    return zlib.crc32(f"{label}/{i}".encode())


def honest_zip(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
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


def raw_zip(
    entries: list[Entry],
    *,
    count: int | None = None,
    directory_size: int | None = None,
    directory_shift: int = 0,
    comment: bytes = b"",
) -> bytes:
    """A zip of exactly these entries, true or not."""
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


def good_entries() -> list[Entry]:
    return [Entry(name.encode(), data) for name, data in pictures().items()]


def with_entry(*entries: Entry) -> bytes:
    return raw_zip([*good_entries(), *entries])


def overlapping() -> bytes:
    """Two directory entries that share one local entry's bytes."""
    data = png(1)
    return raw_zip([Entry(b"cat/0.png", data), Entry(b"cat/1.png", data, at=0, no_local=True)])


def shared_data() -> bytes:
    data = png(1)
    entries = [Entry(b"cat/0.png", data), Entry(b"cat/1.png", data)]
    # The second entry's local header lies within the data of the third, which spans both.
    inner = struct.pack(
        "<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data), 10, 0
    )
    outer = b"\x89PNG" + inner + b"cat/in.png" + data
    start = sum(30 + len(e.name) + len(e.data) for e in entries)
    inner_at = start + 30 + len(b"cat/ou.png") + 4
    return raw_zip(
        [
            *entries,
            Entry(b"cat/ou.png", outer),
            Entry(b"cat/in.png", data, at=inner_at, no_local=True),
        ]
    )


def quoted_overlap(count: int = 40) -> bytes:
    """Each local header is quoted as stored deflate data of the one before: one kernel, many
    outputs.
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


def zip64_records(*, total: int, size: int, offset: int, where: int, pad: bytes = b"") -> bytes:
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, total, total, size, offset)
    return record + pad + struct.pack("<4sLQL", b"PK\x06\x07", 0, where, 1)


def zip64(*, lie_total: int | None = None, where_shift: int = 0, pad: bytes = b"") -> bytes:
    """An honest zip in zip64 form, unless told to lie."""
    plain = raw_zip(good_entries())
    size, offset = struct.unpack_from("<2L", plain, len(plain) - 10)
    count = len(good_entries())
    records = zip64_records(total=lie_total or count, size=size, offset=offset,
                            where=offset + size + where_shift, pad=pad)  # fmt: skip
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[: offset + size] + records + end


def million_empty() -> bytes:
    """A million empty entries that share one local header, declared in zip64."""
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    record = (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
        + b"a"
    )
    central = record * 1_000_000
    records = zip64_records(
        total=1_000_000, size=len(central), offset=len(head), where=len(head) + len(central)
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return head + central + records + end


def million_hidden() -> bytes:
    """A million entries, of which the end record admits the count modulo 65,536."""
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


def bomb() -> bytes:
    return with_entry(Entry(b"cat/bomb.png", bytes(8 << 20), method=8))


def spread_bomb() -> bytes:
    """Entries below the floor of the single ratio that are a bomb together."""
    return raw_zip([Entry(f"cat/{i}.png".encode(), bytes(250_000), method=8) for i in range(200)])


def nested() -> bytes:
    return with_entry(Entry(b"cat/inner.zip", honest_zip(pictures(1))))


def npy(array: "np.ndarray") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def npz(arrays: dict[str, bytes | np.ndarray], method: int = zipfile.ZIP_STORED) -> bytes:
    """An npz; members given as bytes are taken as they are."""
    return honest_zip(
        {f"{k}.npy": v if isinstance(v, bytes) else npy(v) for k, v in arrays.items()}, method
    )


def good_arrays(n: int = 20) -> dict[str, bytes | np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8),
        "labels": np.arange(n) % 2,
    }


def pickled_labels() -> bytes:
    return npz(good_arrays() | {"labels": np.array([{"a": 1}] * 20, dtype=object)})


def pickled_extra() -> bytes:
    return npz(good_arrays() | {"extra": np.array([{"a": 1}], dtype=object)})


def bare_pickle() -> bytes:
    return npz(
        good_arrays() | {"labels": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07evil\x94."}
    )


def lying_npy() -> bytes:
    images = npy(good_arrays()["images"]).replace(b"(20, 8, 8, 3)", b"(99, 8, 8, 3)")  # type: ignore[arg-type]
    return npz(good_arrays() | {"images": images, "labels": np.zeros(99, np.int64)})


def header(
    name: bytes, size: int, kind: bytes = b"0", link: bytes = b"", raw_size: bytes | None = None
) -> bytes:
    """A ustar header with a true checksum."""
    block = bytearray(512)
    block[:100] = name.ljust(100, b"\0")[:100]
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136] = raw_size if raw_size is not None else f"{size:011o}\0".encode()
    block[136:148], block[148:156], block[156:157] = b"00000000000\0", b" " * 8, kind
    block[157:257] = link.ljust(100, b"\0")
    block[257:265] = b"ustar\x0000"
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def tar_entry(name: bytes, data: bytes, kind: bytes = b"0") -> bytes:
    return header(name, len(data), kind) + data + bytes(-len(data) % 512)


def tar(files: dict[str, bytes], *more: bytes) -> bytes:
    return (
        b"".join(tar_entry(n.encode(), d) for n, d in files.items()) + b"".join(more) + bytes(1024)
    )


def pax(records: dict[str, str], kind: bytes = b"x") -> bytes:
    body = b""
    for key, value in records.items():
        record = f" {key}={value}\n".encode()
        length = len(record) + 1
        while len(str(length)) + len(record) != length:
            length = len(str(length)) + len(record)
        body += str(length).encode() + record
    return tar_entry(b"pax", body, kind)


def tar_with(*more: bytes) -> Callable[[], bytes]:
    return lambda: tar(pictures(), *more)


def gzip_bomb() -> bytes:
    return gzip.compress(tar(pictures(), tar_entry(b"cat/bomb.png", bytes(16 << 20))), 9)


def _zip_with(name: bytes, **fields: object) -> Callable[[], bytes]:
    return lambda: with_entry(Entry(name, png(5), **fields))  # type: ignore[arg-type]


def hostile() -> list[Attack]:
    """Every attack."""
    refused, large, invalid = "archive-hostile", "archive-too-large", "archive-invalid"
    lying = Entry(b"cat/lie.png", png(1) * 40, method=8, size=9000)
    over = Entry(b"cat/over.png", png(1), packed=1 << 20, size=1 << 20)
    symlink, fifo = 0o120777, 0o010644
    return [
        Attack("path traversal", _zip_with(b"cat/../../evil.png"), ZIP, refused, "evil.png"),
        Attack("traversal at the end", _zip_with(b"cat/.."), ZIP, refused, "cat/.."),
        Attack("absolute name", _zip_with(b"/etc/cat.png"), ZIP, refused, "/etc/cat.png"),
        Attack("drive name", _zip_with(b"C:cat/evil.png"), ZIP, refused, "C:cat/evil.png"),
        Attack("backslash name", _zip_with(b"cat\\..\\evil.png"), ZIP, refused, "evil.png"),
        Attack("NUL in a name", _zip_with(b"cat/a.png\0.exe"), ZIP, refused, "a.png\\x00.exe"),
        Attack("control character", _zip_with(b"cat/a\x1b[2J.png"), ZIP, refused, "a\\x1b[2J.png"),
        Attack("long name", _zip_with(b"cat/" + b"x" * 2000), ZIP, refused, "cat/xxx"),
        Attack("deep name", _zip_with(b"d/" * 60 + b"x.png"), ZIP, refused, "d/d/d"),
        Attack("false UTF-8", _zip_with(b"cat/\xff\xfe.png", flags=1 << 11), ZIP, refused, "cat/ÿþ"),
        Attack("symbolic "
            "link", _zip_with(b"cat/link.png", mode=symlink), ZIP, refused, "cat/link.png"),
        Attack("pipe", _zip_with(b"cat/fifo.png", mode=fifo), ZIP, refused, "cat/fifo.png"),
        Attack("nested archive", nested, ZIP, refused, "cat/inner.zip"),
        Attack("nested archive, "
            "renamed", lambda: with_entry(Entry(b"cat/i.png", honest_zip(pictures(1)))), ZIP,
               refused, "cat/i.png"),
        Attack("nested archive, "
            "deflated", lambda: with_entry(Entry(b"cat/i.png", gzip.compress(b"x"), method=8)),
               ZIP, refused, "cat/i.png"),
        Attack("overlapping entries", overlapping, ZIP, refused, "cat/1.png"),
        Attack("entry within an entry", shared_data, ZIP, refused, "cat/in.png"),
        Attack("quoted overlap", quoted_overlap, ZIP, refused, "cat/"),
        Attack("bomb", bomb, ZIP, refused, "cat/bomb.png"),
        Attack("bomb in pieces", spread_bomb, ZIP, refused, "100:1"),
        Attack("size too small", lambda: with_entry(lying), ZIP, refused, "cat/lie.png"),
        Attack("size too "
            "large", _zip_with(b"cat/big.png", method=8, size=100_000), ZIP, refused, "cat/big.png"),
        Attack("stored with two "
            "sizes", _zip_with(b"cat/two.png", size=77, local_size=77), ZIP, refused, "two.png"),
        Attack("beyond the archive", lambda: with_entry(over), ZIP, refused, "cat/over.png"),
        Attack("offset beyond", _zip_with(b"cat/off.png", at=1 << 30), ZIP, refused, "cat/off.png"),
        Attack("offset at no entry", _zip_with(b"cat/off.png", at=7), ZIP, refused, "cat/off.png"),
        Attack("duplicate name", _zip_with(b"cat/0.png"), ZIP, refused, "cat/0.png"),
        Attack("duplicate after cleaning", _zip_with(b"cat/./0.png"), ZIP, refused, "cat/0.png"),
        Attack("duplicate in NFC", lambda: with_entry(Entry("cat/\u00e9.png".encode(), png(7)),
                                                      Entry("cat/e\u0301.png".encode(), png(8))), ZIP, refused, "cat/"),
        Attack("other local "
            "name", _zip_with(b"cat/x.png", local_name=b"dog/x.png"), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "size", _zip_with(b"cat/x.png", local_size=5), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "method", _zip_with(b"cat/x.png", local_method=8), ZIP, refused, "cat/x.png"),
        Attack("other local "
            "checksum", _zip_with(b"cat/x.png", local_crc=5), ZIP, refused, "cat/x.png"),
        Attack("encrypted", _zip_with(b"cat/x.png", flags=1), ZIP, refused, "cat/x.png"),
        Attack("unknown packing", _zip_with(b"cat/x.png", method=14), ZIP, refused, "cat/x.png"),
        Attack("two zip64 "
            "fields", _zip_with(b"cat/x.png", extra=struct.pack("<2H", 1, 0) * 2), ZIP, refused, "x.png"),
        Attack("zip64 field too "
            "short", _zip_with(b"cat/x.png", size=0xFFFFFFFF, extra=struct.pack("<2H", 1, 0)), ZIP,
               refused, "x.png"),
        Attack("extra field too "
            "long", _zip_with(b"cat/x.png", extra=struct.pack("<2H", 9, 99)), ZIP, refused, "x.png"),
        Attack("folder with bytes", _zip_with(b"cat/sub/"), ZIP, refused, "cat/sub"),
        Attack("a million empty entries", million_empty, ZIP, large, "1000000"),
        Attack("a million entries hidden", million_hidden, ZIP, refused + "|" + large, "director"),
        Attack("too few entries "
            "declared", lambda: raw_zip(good_entries(), count=3), ZIP, refused, "entries"),
        Attack("too many entries "
            "declared", lambda: raw_zip(good_entries(), count=9), ZIP, refused, "entries"),
        Attack("directory "
            "elsewhere", lambda: raw_zip(good_entries(), directory_shift=5), ZIP, refused, "directory"),
        Attack("second end record", lambda: raw_zip(good_entries(), comment=raw_zip([])), ZIP,
               refused + "|" + invalid, "end-of-directory|no labelled"),
        Attack("zip64 locator astray", lambda: zip64(where_shift=-9), ZIP, refused, "locator"),
        Attack("gap after zip64 record", lambda: zip64(pad=b"x" * 40), ZIP, refused, "locator"),
        Attack("zip64 count", lambda: zip64(lie_total=5), ZIP, refused, "entries"),
        Attack("cut off", lambda: honest_zip(pictures())[:-30], ZIP, invalid, "cut off"),
        Attack("appended bytes", lambda: honest_zip(pictures()) + b"x", ZIP, invalid, "follows"),
        Attack("nothing but the end", lambda: raw_zip([]), ZIP, invalid, "labelled images"),
        Attack("pickled labels", pickled_labels, NPZ, refused, "labels.npy"),
        Attack("pickle beside", pickled_extra, NPZ, refused, "extra.npy"),
        Attack("bare pickle", bare_pickle, NPZ, refused, "labels.npy"),
        Attack("lying npy header", lying_npy, NPZ, refused, "images.npy"),
        Attack("npz bomb", lambda: npz({"images": np.zeros((2000, 32, 32, 3), np.uint8),
                                        "labels": np.zeros(2000, np.int64)}, 8), NPZ, refused, "images.npy"),
        Attack("tar traversal", tar_with(tar_entry(b"cat/../../evil", b"x")), TAR, refused, "evil"),
        Attack("tar absolute", tar_with(tar_entry(b"/etc/passwd", b"x")), TAR, refused, "/etc/passwd"),
        Attack("tar symbolic "
            "link", tar_with(header(b"cat/l", 0, b"2", b"/etc/passwd")), TAR, refused, "cat/l"),
        Attack("tar hard "
            "link", tar_with(header(b"cat/l", 0, b"1", b"cat/0.png")), TAR, refused, "cat/l"),
        Attack("tar device", tar_with(header(b"cat/dev", 0, b"3")), TAR, refused, "cat/dev"),
        Attack("tar pipe", tar_with(header(b"cat/fifo", 0, b"6")), TAR, refused, "cat/fifo"),
        Attack("tar sparse", tar_with(header(b"cat/s", 0, b"S")), TAR, refused, "cat/s"),
        Attack(
            "pax sparse",
            tar_with(pax({"GNU.sparse.major": "1"}), tar_entry(b"cat/s", b"x")),
            TAR,
            refused,
            "cat/s",
        ),
        Attack("pax path", tar_with(pax({"path": "../../evil"}), tar_entry(b"cat/ok", b"x")), TAR, refused, "evil"),
        Attack("pax huge "
            "header", tar_with(header(b"pax", 1 << 33, b"x")), TAR, refused, "8589934592"),
        Attack("pax global path", tar_with(pax({"path": "x"}, b"g")), TAR, refused, "global"),
        Attack("tar negative "
            "size", tar_with(header(b"cat/n", 0, raw_size=b"\xff" * 12)), TAR, refused, "negative"),
        Attack("tar lying size", tar_with(header(b"cat/lie", 1 << 30)), TAR, refused, "cat/lie"),
        Attack("tar huge "
            "size", tar_with(header(b"cat/huge", 0, raw_size=b"\x80" + bytes(5) + b"\x10" + bytes(5))),
               TAR, large + "|" + refused, "cat/huge"),
        Attack("tar duplicate", tar_with(tar_entry(b"./cat/0.png", png(3))), TAR, refused, "cat/0.png"),
        Attack("tar nested", tar_with(tar_entry(b"cat/i.png", honest_zip(pictures(1)))), TAR, refused, "cat/i.png"),
        Attack("tar damaged", lambda: tar(pictures())[:512] + b"y" * 5000, TAR, invalid + "|" + refused, "cat/0.png"),
        Attack("tar after a "
            "tar", lambda: tar(pictures()) + tar({"../evil.png": png()}), TAR, refused, "evil"),
        Attack("tar twice", lambda: tar(pictures()) * 2, TAR, refused, "cat/0.png"),
        Attack("tar and something "
            "else", lambda: tar(pictures()) + bytes(9000) + b"x" * 512, TAR, invalid, "no tar"),
        Attack("gzip of zeros after a "
            "tar", lambda: gzip.compress(tar(pictures(1)) + bytes(32 << 20), 9), GZIP, refused,
               "unpacks to more"),
        Attack("gzip bomb", gzip_bomb, GZIP, refused, "cat/bomb.png"),
        Attack("gzip cut "
            "off", lambda: gzip.compress(tar(pictures()))[:-500], GZIP, invalid, "early"),
        Attack("gzip of tiny "
            "streams", lambda: gzip.compress(tar(pictures())[:100]) + gzip.compress(b"") * 5000, GZIP,
               refused + "|" + invalid, "tiny"),
        Attack("gzip of something "
            "else", lambda: gzip.compress(b"hello" * 500), GZIP, invalid, "tar"),
        Attack("empty body", lambda: b"", ZIP, invalid, "empty"),
        Attack("wrong content "
            "type", lambda: honest_zip(pictures()), TAR, "unsupported-type", "zip"),
        Attack("no archive", lambda: b"GIF89a" + bytes(600), ZIP, "unsupported-type", "single picture"),
        Attack("a picture", lambda: png(), "image/png", "unsupported-type", "image/png"),
    ]  # fmt: skip
