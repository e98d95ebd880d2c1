"""Archives that attack: those of `hostile_corpus`, and more of the same families, each with its own
lie.
"""

import gzip
import io
import lzma
import struct
import zipfile
import zlib

from tests.core.ingest.hostile_corpus import (
    GZIP,
    NPZ,
    TAR,
    ZIP,
    Entry,
    bomb,
    good_entries,
    header,
    honest_zip,
    hostile,
    pax,
    pictures,
    png,
    raw_zip,
    tar,
    tar_entry,
    with_entry,
    zip64_records,
)  # fmt: skip
from tests.security.case import Case

HOSTILE, INVALID, LARGE, LABELS, TYPE = (
    "422 archive-hostile", "422 archive-invalid", "413 archive-too-large", "422 labels-invalid", "415 unsupported-type",
)  # fmt: skip
_STATUS = {
    "archive-hostile": HOSTILE,
    "archive-invalid": INVALID,
    "archive-too-large": LARGE,
    "unsupported-type": TYPE,
}


def cases() -> list[Case]:
    """All archives."""
    known = [
        Case("arrays" if a.content_type == NPZ else "archives", a.name, a.build,
             tuple(_STATUS[code] for code in a.code.split("|")), headers={"Content-Type": a.content_type})
        for a in hostile()
    ]  # fmt: skip
    return [*known, *_zips(), *_tars(), *_labels()]


def _case(name, build, *answers: str, kind: str = ZIP) -> Case:
    return Case("archives", name, build, answers, headers={"Content-Type": kind})


def _zip(name: str, entry: Entry, *answers: str) -> Case:
    return _case(name, lambda: with_entry(entry), *(answers or (HOSTILE,)))


def _zips() -> list[Case]:
    data = png(5)
    mode = {"character device": 0o020644, "block device": 0o060644, "socket": 0o140644}
    return [
        _case("zip of zips of zips (42.zip)", lambda: _matryoshka(4), HOSTILE),
        _case("zip that holds itself by "
            "prefix", lambda: b"PK\x03\x04" + honest_zip(pictures()), HOSTILE, INVALID),
        _case("zip behind a picture (polyglot)", lambda: png() + honest_zip(pictures()), TYPE),
        _case("zip behind a script", lambda: b"#!/bin/sh\nrm -rf "
            b"/\n" + honest_zip(pictures()), TYPE),
        _case("two zips "
            "glued", lambda: honest_zip(pictures(1)) + honest_zip(pictures(2)), HOSTILE, INVALID),
        _case("comment of 65,535 bytes with end records",
              lambda: raw_zip(good_entries(), comment=b"PK\x05\x06" * 16383),
              HOSTILE, INVALID),
        _case("comment longer than the "
            "file", lambda: raw_zip(good_entries())[:-2] + b"\xff\xff", INVALID),
        _case("entry count 65,535 without "
            "zip64", lambda: raw_zip(good_entries(), count=65535), HOSTILE),
        _case("directory of 4 "
            "GiB", lambda: raw_zip(good_entries(), directory_size=0xFFFFFFFF), HOSTILE, LARGE),
        _case("directory before the "
            "file", lambda: raw_zip(good_entries(), directory_shift=-90), HOSTILE),
        _case("directory offset 4 GiB", lambda: _end_with(16, b"\xff\xff\xff\xff"), HOSTILE),
        _case("part 7 of a divided zip", lambda: _end_with(4, b"\x07\0"), INVALID),
        _case("other count on this disk", lambda: _end_with(8, b"\x01\0"), INVALID),
        _case("300,000 empty entries, directory full of "
            "names", lambda: _many(300_000), HOSTILE, LARGE),
        _case("zip64 with 2^63 entries", lambda: _zip64(total=1 << 63), HOSTILE, LARGE),
        _case("zip64 directory of 2^63 bytes", lambda: _zip64(size=1 << 63), HOSTILE, LARGE),
        _case("zip64 directory at 2^64 - 1", lambda: _zip64(offset=(1 << 64) - 1), HOSTILE),
        _case("zip64 locator at itself", lambda: _zip64(where=None), HOSTILE),
        _zip("zip64 size 2^63 of an "
            "entry", Entry(b"cat/x.png", data, size=0xFFFFFFFF, packed=0xFFFFFFFF,
             extra=struct.pack("<2H2Q", 1, 16, 1 << 63, 1 << 63))),
        _zip("zip64 offset 2^63 of an entry", Entry(b"cat/x.png", data, at=0xFFFFFFFF,
             extra=struct.pack("<2HQ", 1, 8, 1 << 63))),
        _zip("same file twice by other case of NFC", Entry("cat/\u212b.png".encode(), data),
             "422 archive-invalid", "202"),
        _zip("name of dots", Entry(b"cat/...", data), "202", HOSTILE),
        _zip("name with CR LF", Entry(b"cat/a\r\nSet-Cookie: x", data)),
        _zip("name with right-to-left "
            "override", Entry("cat/\u202egnp.exe".encode(), data), HOSTILE),
        _zip("name with a line separator", Entry("cat/a\u2028b.png".encode(), data)),
        _zip("name with half a surrogate", Entry(b"cat/\xed\xa0\x80.png", data, flags=1 << 11)),
        _zip("overlong UTF-8 dots", Entry(b"cat/\xc0\xae\xc0\xae/x.png", data, flags=1 << 11)),
        _zip("UNC name", Entry(b"\\\\host\\share\\x.png", data)),
        _zip("double slash root", Entry(b"//etc/cat.png", data)),
        _zip("name of 65,535 bytes", Entry(b"cat/" + b"n" * 65_531, data), HOSTILE, LARGE),
        _zip("empty name", Entry(b"", data)),
        _zip("name of one slash", Entry(b"/", b"")),
        *[_zip(f"zip {kind}", Entry(b"cat/x.png", data, mode=bits)) for kind, bits in mode.items()],
        _zip("strong encryption", Entry(b"cat/x.png", data, flags=1 << 6 | 1)),
        _zip("masked headers", Entry(b"cat/x.png", data, flags=1 << 13)),
        *[_zip(f"packing method "
            f"{n}", Entry(b"cat/x.png", data, method=n)) for n in (1, 6, 9, 12, 93, 95, 97, 99)],
        _zip("nested 7z", Entry(b"cat/x.png", b"7z\xbc\xaf\x27\x1c" + bytes(40))),
        _zip("nested xz", Entry(b"cat/x.png", lzma.compress(b"x"))),
        _zip("nested zstd", Entry(b"cat/x.png", b"\x28\xb5\x2f\xfd" + bytes(40))),
        _zip("nested by name only", Entry(b"cat/x.TAR.GZ", b"x")),
        _zip("deflate of 1,031:1", Entry(b"cat/x.png", bytes(8 << 20), method=8)),
        _zip("deflate beyond what deflate "
            "can", Entry(b"cat/x.png", b"x" * 99, method=8, size=1 << 30)),
        _zip("empty deflate stream of a "
            "megabyte", Entry(b"cat/x.png", b"", method=8, size=1 << 20)),
        _zip("data behind the deflate stream", _padded(b"cat/x.png", data)),
        _zip("checksum that is another's", Entry(b"cat/x.png", data, crc=1, local_crc=2)),
        _zip("folder that is a bomb", Entry(b"cat/sub/", bytes(1 << 20), method=8)),
        _case("files beside no class", lambda: honest_zip({"a.png": data, "b.png": data}), INVALID),
        _case("only what file managers leave",
              lambda: honest_zip({"__MACOSX/a/b.png": data, ".DS_Store": b"x"}), INVALID),
        _case("test part without "
            "training", lambda: honest_zip({"test/cat/a.png": data}), "422 labels-invalid",
              INVALID),
        _case("label of 101 characters", lambda: honest_zip({f"{'x' * 101}/a.png": data}), LABELS),
        _case("10,001 classes", lambda: honest_zip({f"c{i}/a.png": b"x" for i in range(10_001)}), LARGE),
        _case("bomb as a form's file", bomb, HOSTILE),
        _case("one byte", lambda: b"P", TYPE),
        _case("signature and nothing", lambda: b"PK\x03\x04", INVALID),
    ]  # fmt: skip


def _tars() -> list[Case]:
    good = pictures()

    def t(name: str, *more: bytes, answers: tuple[str, ...] = (HOSTILE,)) -> Case:
        return _case(name, lambda: tar(good, *more), *answers, kind=TAR)

    data = tar_entry(b"cat/x.png", png(3))
    base256 = b"\x80" + bytes(2) + b"\xff" * 9
    return [
        t("tar block device", header(b"cat/b", 0, b"4")),
        t("tar contiguous bomb", header(b"cat/c", 1 << 34, b"7"), answers=(HOSTILE, LARGE)),
        t("tar volume header", header(b"vol", 0, b"V")),
        t("tar continuation", header(b"cat/m", 0, b"M")),
        t("tar type 255", header(b"cat/t", 0, b"\xff")),
        t("tar base-256 size of "
            "2^72", header(b"cat/n", 0, raw_size=base256), answers=(HOSTILE, LARGE)),
        t("tar base-256 size of -1", header(b"cat/n", 0, raw_size=b"\xff" * 12)),
        t("tar size of "
            "letters", header(b"cat/n", 0, raw_size=b"0000000000z\0"), answers=(INVALID,)),
        t("tar size with a "
            "sign", header(b"cat/n", 0, raw_size=b"-0000000001\0"), answers=(INVALID,)),
        t("tar size of digit "
            "9", header(b"cat/n", 0, raw_size=b"00000000009\0"), answers=(INVALID,)),
        t("tar long name of 64 KiB", tar_entry(b"././@LongLink", b"n" * 65_536, b"L"), data),
        t("tar long name of 4 GiB", header(b"././@LongLink", 1 << 32, b"L"), data),
        t("tar long name that climbs", tar_entry(b"././@LongLink", b"../../x", b"L"), data),
        t("tar long link "
            "name", tar_entry(b"././@LongLink", b"/etc/passwd", b"K"), header(b"cat/l", 0, b"2")),
        t("tar symbolic link, then a file through "
            "it", header(b"cat/l", 0, b"2", b"/etc"), tar_entry(b"cat/l/x", b"x")),
        t("tar hard link to a later entry", header(b"cat/l", 0, b"1", b"cat/later"), data),
        t("pax size that lies", pax({"size": "99999999"}), data),
        t("pax size of 19 digits", pax({"size": "9" * 19}), data),
        t("pax size with a sign", pax({"size": "-5"}), data),
        t("pax size of other digits", pax({"size": "\u0661\u0662"}), data),
        t("pax record longer than the "
            "header", tar_entry(b"pax", b"99 path=x\n", b"x"), data, answers=(INVALID,)),
        t("pax record of length "
            "0", tar_entry(b"pax", b"0 path=x\n", b"x"), data, answers=(INVALID,)),
        t("pax record without "
            "equals", tar_entry(b"pax", b"7 path\n", b"x"), data, answers=(INVALID,)),
        t("pax absolute path", pax({"path": "/etc/cron.d/x"}), data),
        t("pax path with NUL", pax({"path": "cat/a\0b"}), data),
        t("pax path with bidi override", pax({"path": "cat/\u202egnp.exe"}), data),
        t("pax path of 2,000 bytes", pax({"path": "cat/" + "n" * 2000}), data),
        t("pax sparse 0.0", pax({"GNU.sparse.size": "1099511627776"}), data),
        t("pax global size", pax({"size": "0"}, b"g"), data),
        t("pax header of a pax header", pax({"path": "x"}), pax({"path": "../y"}), data),
        t("tar nested gzip", tar_entry(b"cat/x.png", gzip.compress(b"x"))),
        t("tar duplicate through pax", pax({"path": "cat/0.png"}), data),
        t("tar folder with bytes", header(b"cat/d/", 512, b"5"), bytes(512)),
        t("tar entry without a name", tar_entry(b"", b"x")),
        t("tar drive name", tar_entry(b"C:/x.png", b"x")),
        t("tar name with a tab", tar_entry(b"cat/a\tb", b"x")),
        _case("tar cut in an entry", lambda: tar(good)[:700], INVALID, HOSTILE, kind=TAR),
        _case("tar with a false "
            "checksum", lambda: tar(good, b"x" + header(b"cat/y", 0)[1:]), INVALID, kind=TAR),
        _case("tar.xz", lambda: lzma.compress(tar(good)), TYPE, kind="application/x-tar"),
        _case("gzip of 8 GiB declared",
              lambda: gzip.compress(header(b"cat/a.png", 8 << 30) + bytes(64 << 20), 9), HOSTILE, kind=GZIP),
        _case("gzip in gzip in "
            "gzip", lambda: gzip.compress(gzip.compress(gzip.compress(tar(good)))), INVALID,
              kind=GZIP),
        _case("gzip with a false "
            "checksum", lambda: gzip.compress(tar(good))[:-8] + bytes(8), INVALID, kind=GZIP),
        _case("gzip with bytes behind "
            "it", lambda: gzip.compress(tar(good)) + b"evil" * 99, "202", INVALID, kind=GZIP),
        _case("gzip header of a 1 MB "
            "name", lambda: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (1 << 20), INVALID,
              kind=GZIP),
        _case("gzip of a zip", lambda: gzip.compress(honest_zip(good)), INVALID, kind=GZIP),
        _case("gzip of nothing", lambda: gzip.compress(b""), INVALID, kind=GZIP),
        _case("gzip head alone", lambda: b"\x1f\x8b\x08", INVALID, kind=GZIP),
    ]  # fmt: skip


def _labels() -> list[Case]:
    def c(name: str, text: bytes, *answers: str) -> Case:
        return _case(
            f"labels.csv {name}",
            lambda: honest_zip(pictures(1) | {"labels.csv": text}),
            *(answers or (LABELS,)),
        )

    head = b"path,label\n"
    return [
        c("path that climbs", head + b"../../etc/passwd,cat\n"),
        c("absolute path", head + b"/etc/passwd,cat\n"),
        c("path that is not there", head + b"cat/9.png,cat\n"),
        c("same path twice", head + b"cat/0.png,a\ncat/0.png,b\n"),
        c("NUL in a label", head + b"cat/0.png,a\0b\n"),
        c("control character in a label", head + b"cat/0.png,a\x1b[2Jb\n"),
        c("bidi override in a label", head + "cat/0.png,a\u202eb\n".encode()),
        c("empty label", head + b"cat/0.png,\n"),
        c("label of 10,000 characters", head + b"cat/0.png," + b"x" * 10_000 + b"\n"),
        c("field of 10 MB", head + b'cat/0.png,"' + b"x" * 10_000_000 + b'"\n'),
        c("quote that never ends", head + b'cat/0.png,"abc\n' * 3),
        c("UTF-16 that ends within a character", "path,label\ncat/0.png,a\n".encode("utf-16")[:-1]),
        c("wrong header", b"file,class\ncat/7.png,a\n"),
        c("JSON of a million brackets", b"[" * 1_000_000),
        c("no rows", head),
        c("no bytes", b""),
        c("unknown splits", b"path,label,split\ncat/0.png,a,hidden\ndog/0.png,a,secret\n"),
        c("too many cells", head + b"cat/0.png,a" + b",x" * 100_000 + b"\n"),
        c("bomb of 33 MB", head + b"#" * (33 << 20), LARGE, HOSTILE),
        _case("labels.csv a million lines", lambda: honest_zip(
            pictures(1) | {"labels.csv": head + b"a,b\n" * 1_000_000}), LARGE, LABELS),
        _case("labels.csv with a false checksum", lambda: raw_zip(
            [*good_entries(), Entry(b"labels.csv", head + b"cat/0.png,a\n", crc=7)]), INVALID),
    ]  # fmt: skip


def _matryoshka(depth: int) -> bytes:
    data = bytes(1 << 20)
    for level in range(depth):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for number in range(16):
                file.writestr(f"cat/{number}.{'zip' if level else 'png'}", data)
        data = out.getvalue()
    return data


def _end_with(offset: int, field: bytes) -> bytes:
    """A zip whose end record has another field at `offset`."""
    plain = raw_zip(good_entries())
    at = len(plain) - 22 + offset
    return plain[:at] + field + plain[at + len(field) :]


def _many(count: int) -> bytes:
    name = b"n" * 60
    head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0) + name
    record = (
        struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0
        )
        + name
    )
    central = record * count
    where = len(head) + len(central)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return (
        head
        + central
        + zip64_records(total=count, size=len(central), offset=len(head), where=where)
        + end
    )


def _zip64(**lies: int | None) -> bytes:
    plain = raw_zip(good_entries())
    size, offset = struct.unpack_from("<2L", plain, len(plain) - 10)
    true = {
        "total": len(good_entries()),
        "size": size,
        "offset": offset,
        "where": offset + size,
    } | lies
    true["where"] = offset + size + 56 if true["where"] is None else true["where"]
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[: offset + size] + zip64_records(**true) + end  # type: ignore[arg-type]


def _padded(name: bytes, data: bytes) -> Entry:
    entry = Entry(name, data, method=8)
    entry.stream += zlib.compress(b"hidden")
    return entry
