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
    build_good_entries,
    build_pax_entry,
    build_raw_zip,
    build_tar,
    build_tar_entry,
    build_tar_header,
    build_zip,
    build_zip64_records,
    build_zip_bomb,
    build_zip_with_entries,
    draw_pictures,
    draw_png,
    list_attacks,
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


def list_cases() -> list[Case]:
    """Return all cases of archives."""
    known = [
        Case("arrays" if a.content_type == NPZ else "archives", a.name, a.build,
             tuple(_STATUS[code] for code in a.code.split("|")), headers={"Content-Type": a.content_type})
        for a in list_attacks()
    ]  # fmt: skip
    return [*known, *_list_zip_cases(), *_list_tar_cases(), *_list_label_cases()]


def _make_case(name, build, *answers: str, kind: str = ZIP) -> Case:
    return Case("archives", name, build, answers, headers={"Content-Type": kind})


def _make_zip_case(name: str, entry: Entry, *answers: str) -> Case:
    return _make_case(name, lambda: build_zip_with_entries(entry), *(answers or (HOSTILE,)))


def _list_zip_cases() -> list[Case]:
    data = draw_png(5)
    mode = {"character device": 0o020644, "block device": 0o060644, "socket": 0o140644}
    return [
        _make_case("zip of zips of zips (42.zip)", lambda: _build_nested_zip(4), HOSTILE),
        _make_case("zip that holds itself by "
            "prefix", lambda: b"PK\x03\x04" + build_zip(draw_pictures()), HOSTILE, INVALID),
        _make_case("zip behind a picture (polyglot)", lambda: draw_png() + build_zip(draw_pictures()), TYPE),
        _make_case("zip behind a script", lambda: b"#!/bin/sh\nrm -rf "
            b"/\n" + build_zip(draw_pictures()), TYPE),
        _make_case("two zips "
            "glued", lambda: build_zip(draw_pictures(1)) + build_zip(draw_pictures(2)), HOSTILE, INVALID),
        _make_case("comment of 65,535 bytes with end records",
              lambda: build_raw_zip(build_good_entries(), comment=b"PK\x05\x06" * 16383),
              HOSTILE, INVALID),
        _make_case("comment longer than the "
            "file", lambda: build_raw_zip(build_good_entries())[:-2] + b"\xff\xff", INVALID),
        _make_case("entry count 65,535 without "
            "zip64", lambda: build_raw_zip(build_good_entries(), count=65535), HOSTILE),
        _make_case("directory of 4 "
            "GiB", lambda: build_raw_zip(build_good_entries(), directory_size=0xFFFFFFFF), HOSTILE, LARGE),
        _make_case("directory before the "
            "file", lambda: build_raw_zip(build_good_entries(), directory_shift=-90), HOSTILE),
        _make_case("directory offset 4 GiB", lambda: _build_zip_with_end(16, b"\xff\xff\xff\xff"), HOSTILE),
        _make_case("part 7 of a divided zip", lambda: _build_zip_with_end(4, b"\x07\0"), INVALID),
        _make_case("other count on this disk", lambda: _build_zip_with_end(8, b"\x01\0"), INVALID),
        _make_case("300,000 empty entries, directory full of "
            "names", lambda: _build_zip_of_entries(300_000), HOSTILE, LARGE),
        _make_case("zip64 with 2^63 entries", lambda: _build_zip64(total=1 << 63), HOSTILE, LARGE),
        _make_case("zip64 directory of 2^63 bytes", lambda: _build_zip64(size=1 << 63), HOSTILE, LARGE),
        _make_case("zip64 directory at 2^64 - 1", lambda: _build_zip64(offset=(1 << 64) - 1), HOSTILE),
        _make_case("zip64 locator at itself", lambda: _build_zip64(where=None), HOSTILE),
        _make_zip_case("zip64 size 2^63 of an "
            "entry", Entry(b"cat/x.png", data, size=0xFFFFFFFF, packed=0xFFFFFFFF,
             extra=struct.pack("<2H2Q", 1, 16, 1 << 63, 1 << 63))),
        _make_zip_case("zip64 offset 2^63 of an entry", Entry(b"cat/x.png", data, at=0xFFFFFFFF,
             extra=struct.pack("<2HQ", 1, 8, 1 << 63))),
        _make_zip_case("same file twice by other case of NFC", Entry("cat/\u212b.png".encode(), data),
             "422 archive-invalid", "202"),
        _make_zip_case("name of dots", Entry(b"cat/...", data), "202", HOSTILE),
        _make_zip_case("name with CR LF", Entry(b"cat/a\r\nSet-Cookie: x", data)),
        _make_zip_case("name with right-to-left "
            "override", Entry("cat/\u202egnp.exe".encode(), data), HOSTILE),
        _make_zip_case("name with a line separator", Entry("cat/a\u2028b.png".encode(), data)),
        _make_zip_case("name with half a surrogate", Entry(b"cat/\xed\xa0\x80.png", data, flags=1 << 11)),
        _make_zip_case("overlong UTF-8 dots", Entry(b"cat/\xc0\xae\xc0\xae/x.png", data, flags=1 << 11)),
        _make_zip_case("UNC name", Entry(b"\\\\host\\share\\x.png", data)),
        _make_zip_case("double slash root", Entry(b"//etc/cat.png", data)),
        _make_zip_case("name of 65,535 bytes", Entry(b"cat/" + b"n" * 65_531, data), HOSTILE, LARGE),
        _make_zip_case("empty name", Entry(b"", data)),
        _make_zip_case("name of one slash", Entry(b"/", b"")),
        *[_make_zip_case(f"zip {kind}", Entry(b"cat/x.png", data, mode=bits)) for kind, bits in mode.items()],
        _make_zip_case("strong encryption", Entry(b"cat/x.png", data, flags=1 << 6 | 1)),
        _make_zip_case("masked headers", Entry(b"cat/x.png", data, flags=1 << 13)),
        *[_make_zip_case(f"packing method "
            f"{n}", Entry(b"cat/x.png", data, method=n)) for n in (1, 6, 9, 12, 93, 95, 97, 99)],
        _make_zip_case("nested 7z", Entry(b"cat/x.png", b"7z\xbc\xaf\x27\x1c" + bytes(40))),
        _make_zip_case("nested xz", Entry(b"cat/x.png", lzma.compress(b"x"))),
        _make_zip_case("nested zstd", Entry(b"cat/x.png", b"\x28\xb5\x2f\xfd" + bytes(40))),
        _make_zip_case("nested by name only", Entry(b"cat/x.TAR.GZ", b"x")),
        _make_zip_case("deflate of 1,031:1", Entry(b"cat/x.png", bytes(8 << 20), method=8)),
        _make_zip_case("deflate beyond what deflate "
            "can", Entry(b"cat/x.png", b"x" * 99, method=8, size=1 << 30)),
        _make_zip_case("empty deflate stream of a "
            "megabyte", Entry(b"cat/x.png", b"", method=8, size=1 << 20)),
        _make_zip_case("data behind the deflate stream", _make_padded_entry(b"cat/x.png", data)),
        _make_zip_case("checksum that is another's", Entry(b"cat/x.png", data, crc=1, local_crc=2)),
        _make_zip_case("folder that is a bomb", Entry(b"cat/sub/", bytes(1 << 20), method=8)),
        _make_case("files beside no class", lambda: build_zip({"a.png": data, "b.png": data}), INVALID),
        _make_case("only what file managers leave",
              lambda: build_zip({"__MACOSX/a/b.png": data, ".DS_Store": b"x"}), INVALID),
        _make_case("test part without "
            "training", lambda: build_zip({"test/cat/a.png": data}), "422 labels-invalid",
              INVALID),
        _make_case("label of 101 characters", lambda: build_zip({f"{'x' * 101}/a.png": data}), LABELS),
        _make_case("10,001 classes", lambda: build_zip({f"c{i}/a.png": b"x" for i in range(10_001)}), LARGE),
        _make_case("bomb as a form's file", build_zip_bomb, HOSTILE),
        _make_case("one byte", lambda: b"P", TYPE),
        _make_case("signature and nothing", lambda: b"PK\x03\x04", INVALID),
    ]  # fmt: skip


def _list_tar_cases() -> list[Case]:
    good = draw_pictures()

    def make_tar_case(name: str, *more: bytes, answers: tuple[str, ...] = (HOSTILE,)) -> Case:
        return _make_case(name, lambda: build_tar(good, *more), *answers, kind=TAR)

    data = build_tar_entry(b"cat/x.png", draw_png(3))
    base256 = b"\x80" + bytes(2) + b"\xff" * 9
    return [
        make_tar_case("tar block device", build_tar_header(b"cat/b", 0, b"4")),
        make_tar_case("tar contiguous bomb", build_tar_header(b"cat/c", 1 << 34, b"7"), answers=(HOSTILE, LARGE)),
        make_tar_case("tar volume header", build_tar_header(b"vol", 0, b"V")),
        make_tar_case("tar continuation", build_tar_header(b"cat/m", 0, b"M")),
        make_tar_case("tar type 255", build_tar_header(b"cat/t", 0, b"\xff")),
        make_tar_case("tar base-256 size of "
            "2^72", build_tar_header(b"cat/n", 0, raw_size=base256), answers=(HOSTILE, LARGE)),
        make_tar_case("tar base-256 size of -1", build_tar_header(b"cat/n", 0, raw_size=b"\xff" * 12)),
        make_tar_case("tar size of "
            "letters", build_tar_header(b"cat/n", 0, raw_size=b"0000000000z\0"), answers=(INVALID,)),
        make_tar_case("tar size with a "
            "sign", build_tar_header(b"cat/n", 0, raw_size=b"-0000000001\0"), answers=(INVALID,)),
        make_tar_case("tar size of digit "
            "9", build_tar_header(b"cat/n", 0, raw_size=b"00000000009\0"), answers=(INVALID,)),
        make_tar_case("tar long name of 64 KiB", build_tar_entry(b"././@LongLink", b"n" * 65_536, b"L"), data),
        make_tar_case("tar long name of 4 GiB", build_tar_header(b"././@LongLink", 1 << 32, b"L"), data),
        make_tar_case("tar long name that climbs", build_tar_entry(b"././@LongLink", b"../../x", b"L"), data),
        make_tar_case("tar long link "
            "name", build_tar_entry(b"././@LongLink", b"/etc/passwd", b"K"), build_tar_header(b"cat/l", 0, b"2")),
        make_tar_case("tar symbolic link, then a file through "
            "it", build_tar_header(b"cat/l", 0, b"2", b"/etc"), build_tar_entry(b"cat/l/x", b"x")),
        make_tar_case("tar hard link to a later entry", build_tar_header(b"cat/l", 0, b"1", b"cat/later"), data),
        make_tar_case("pax size that lies", build_pax_entry({"size": "99999999"}), data),
        make_tar_case("pax size of 19 digits", build_pax_entry({"size": "9" * 19}), data),
        make_tar_case("pax size with a sign", build_pax_entry({"size": "-5"}), data),
        make_tar_case("pax size of other digits", build_pax_entry({"size": "\u0661\u0662"}), data),
        make_tar_case("pax record longer than the "
            "header", build_tar_entry(b"pax", b"99 path=x\n", b"x"), data, answers=(INVALID,)),
        make_tar_case("pax record of length "
            "0", build_tar_entry(b"pax", b"0 path=x\n", b"x"), data, answers=(INVALID,)),
        make_tar_case("pax record without "
            "equals", build_tar_entry(b"pax", b"7 path\n", b"x"), data, answers=(INVALID,)),
        make_tar_case("pax absolute path", build_pax_entry({"path": "/etc/cron.d/x"}), data),
        make_tar_case("pax path with NUL", build_pax_entry({"path": "cat/a\0b"}), data),
        make_tar_case("pax path with bidi override", build_pax_entry({"path": "cat/\u202egnp.exe"}), data),
        make_tar_case("pax path of 2,000 bytes", build_pax_entry({"path": "cat/" + "n" * 2000}), data),
        make_tar_case("pax sparse 0.0", build_pax_entry({"GNU.sparse.size": "1099511627776"}), data),
        make_tar_case("pax global size", build_pax_entry({"size": "0"}, b"g"), data),
        make_tar_case("pax header of a pax header", build_pax_entry({"path": "x"}),
            build_pax_entry({"path": "../y"}), data),
        make_tar_case("tar nested gzip", build_tar_entry(b"cat/x.png", gzip.compress(b"x"))),
        make_tar_case("tar duplicate through pax", build_pax_entry({"path": "cat/0.png"}), data),
        make_tar_case("tar folder with bytes", build_tar_header(b"cat/d/", 512, b"5"), bytes(512)),
        make_tar_case("tar entry without a name", build_tar_entry(b"", b"x")),
        make_tar_case("tar drive name", build_tar_entry(b"C:/x.png", b"x")),
        make_tar_case("tar name with a tab", build_tar_entry(b"cat/a\tb", b"x")),
        _make_case("tar cut in an entry", lambda: build_tar(good)[:700], INVALID, HOSTILE, kind=TAR),
        _make_case("tar with a false "
            "checksum", lambda: build_tar(good, b"x" + build_tar_header(b"cat/y", 0)[1:]), INVALID, kind=TAR),
        _make_case("tar.xz", lambda: lzma.compress(build_tar(good)), TYPE, kind="application/x-tar"),
        _make_case("gzip of 8 GiB declared",
              lambda: gzip.compress(build_tar_header(b"cat/a.png", 8 << 30) + bytes(64 << 20), 9), HOSTILE, kind=GZIP),
        _make_case("gzip in gzip in "
            "gzip", lambda: gzip.compress(gzip.compress(gzip.compress(build_tar(good)))), INVALID,
              kind=GZIP),
        _make_case("gzip with a false "
            "checksum", lambda: gzip.compress(build_tar(good))[:-8] + bytes(8), INVALID, kind=GZIP),
        _make_case("gzip with bytes behind "
            "it", lambda: gzip.compress(build_tar(good)) + b"evil" * 99, "202", INVALID, kind=GZIP),
        _make_case("gzip header of a 1 MB "
            "name", lambda: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (1 << 20), INVALID,
              kind=GZIP),
        _make_case("gzip of a zip", lambda: gzip.compress(build_zip(good)), INVALID, kind=GZIP),
        _make_case("gzip of nothing", lambda: gzip.compress(b""), INVALID, kind=GZIP),
        _make_case("gzip head alone", lambda: b"\x1f\x8b\x08", INVALID, kind=GZIP),
    ]  # fmt: skip


def _list_label_cases() -> list[Case]:
    def make_label_case(name: str, text: bytes, *answers: str) -> Case:
        return _make_case(
            f"labels.csv {name}",
            lambda: build_zip(draw_pictures(1) | {"labels.csv": text}),
            *(answers or (LABELS,)),
        )

    head = b"path,label\n"
    return [
        make_label_case("path that climbs", head + b"../../etc/passwd,cat\n"),
        make_label_case("absolute path", head + b"/etc/passwd,cat\n"),
        make_label_case("path that is not there", head + b"cat/9.png,cat\n"),
        make_label_case("same path twice", head + b"cat/0.png,a\ncat/0.png,b\n"),
        make_label_case("NUL in a label", head + b"cat/0.png,a\0b\n"),
        make_label_case("control character in a label", head + b"cat/0.png,a\x1b[2Jb\n"),
        make_label_case("bidi override in a label", head + "cat/0.png,a\u202eb\n".encode()),
        make_label_case("empty label", head + b"cat/0.png,\n"),
        make_label_case("label of 10,000 characters", head + b"cat/0.png," + b"x" * 10_000 + b"\n"),
        make_label_case("field of 10 MB", head + b'cat/0.png,"' + b"x" * 10_000_000 + b'"\n'),
        make_label_case("quote that never ends", head + b'cat/0.png,"abc\n' * 3),
        make_label_case("UTF-16 that ends within a character", "path,label\ncat/0.png,a\n".encode("utf-16")[:-1]),
        make_label_case("wrong header", b"file,class\ncat/7.png,a\n"),
        make_label_case("JSON of a million brackets", b"[" * 1_000_000),
        make_label_case("no rows", head),
        make_label_case("no bytes", b""),
        make_label_case("unknown splits", b"path,label,split\ncat/0.png,a,hidden\ndog/0.png,a,secret\n"),
        make_label_case("too many cells", head + b"cat/0.png,a" + b",x" * 100_000 + b"\n"),
        make_label_case("bomb of 33 MB", head + b"#" * (33 << 20), LARGE, HOSTILE),
        _make_case("labels.csv a million lines", lambda: build_zip(
            draw_pictures(1) | {"labels.csv": head + b"a,b\n" * 1_000_000}), LARGE, LABELS),
        _make_case("labels.csv with a false checksum", lambda: build_raw_zip(
            [*build_good_entries(), Entry(b"labels.csv", head + b"cat/0.png,a\n", crc=7)]), INVALID),
    ]  # fmt: skip


def _build_nested_zip(depth: int) -> bytes:
    data = bytes(1 << 20)
    for level in range(depth):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            for number in range(16):
                file.writestr(f"cat/{number}.{'zip' if level else 'png'}", data)
        data = out.getvalue()
    return data


def _build_zip_with_end(offset: int, field: bytes) -> bytes:
    """Build a zip whose end record has another field at `offset`."""
    plain = build_raw_zip(build_good_entries())
    at = len(plain) - 22 + offset
    return plain[:at] + field + plain[at + len(field) :]


def _build_zip_of_entries(count: int) -> bytes:
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
        + build_zip64_records(total=count, size=len(central), offset=len(head), where=where)
        + end
    )


def _build_zip64(**lies: int | None) -> bytes:
    plain = build_raw_zip(build_good_entries())
    size, offset = struct.unpack_from("<2L", plain, len(plain) - 10)
    true = {
        "total": len(build_good_entries()),
        "size": size,
        "offset": offset,
        "where": offset + size,
    } | lies
    true["where"] = offset + size + 56 if true["where"] is None else true["where"]
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[: offset + size] + build_zip64_records(**true) + end  # type: ignore[arg-type]


def _make_padded_entry(name: bytes, data: bytes) -> Entry:
    entry = Entry(name, data, method=8)
    entry.stream += zlib.compress(b"hidden")
    return entry
