"""Reading of names in a zip that do not say their encoding."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_corpus import Entry, build_raw_zip, draw_png

from core.errors import ArchiveHostile, ArchiveInvalid
from core.ingest.ingest import IngestedBatch
from core.ingest.inspect import ArchiveSummary, summarise_archive_and_digest_content
from core.ingest.layout import BatchReadingSettings
from core.ingest.limits import ArchiveLimits
from core.ingest.readers.zip import list_regular_zip_files
from core.ingest.zip_names import choose_likely_zip_name_encoding
from perennial.reading_rules.entries import BatchReadingOptions

Look = Callable[..., ArchiveSummary]
CHINESE = ["猫/照片 1.jpg", "狗/2.jpg", "苹果/1.jpg", "向日葵/1.jpg", "图片/膜/1.jpg"]
JAPANESE = [
    "犬/1.jpg",
    "猫/写真.jpg",
    "ねこ/1.jpg",
    "イヌ/カラス.png",
    "表/1.png",
    "新しいフォルダー/鳥.png",
]
GERMAN = ["Käfer/1.jpg", "Möwe/1.jpg", "Vögel/1.jpg", "Äpfel/2.jpg", "Größe/Frühstück.jpg"]
FRENCH = ["été/1.jpg", "garçon/1.jpg", "Noël/1.jpg", "forêt/chêne.jpg"]


@pytest.mark.parametrize(
    ("names", "encoding"),
    [
        (CHINESE, "gbk"),
        (JAPANESE, "cp932"),
        (GERMAN, "cp1252"),
        (GERMAN, "cp437"),
        (FRENCH, "cp1252"),
        (FRENCH, "cp437"),
        (["Peter’s cat/1.jpg"], "cp1252"),
        (CHINESE + JAPANESE + GERMAN, "utf-8"),
        *((one, "gbk") for one in (["狗/1"], ["苹果/1"], ["图片/猫咪/1"])),
        *((one, "cp932") for one in (["犬/1"], ["猫/1"], ["イヌ/1"])),
        *(([name], "cp1252") for name in GERMAN),
        *(([name], "cp437") for name in FRENCH),
    ],
)
def test_an_encoding_is_found_by_the_letters_that_it_gives(names: list[str], encoding: str) -> None:
    assert choose_likely_zip_name_encoding(name.encode(encoding) for name in names) == encoding


def build_named_zip(names: list[bytes], flags: int = 0, extra: bytes = b"") -> bytes:
    return build_raw_zip(
        [Entry(name, draw_png(i), flags=flags, extra=extra) for i, name in enumerate(names)]
    )


def build_unicode_path_field(name: str, of: bytes, version: int = 1) -> bytes:
    body = struct.pack("<BL", version, zlib.crc32(of)) + name.encode()
    return struct.pack("<HH", 0x7075, len(body)) + body


@pytest.mark.parametrize(
    ("names", "encoding", "called"),
    [
        (CHINESE[:4], "gbk", "GBK"),
        (JAPANESE[:5], "cp932", "Shift-JIS"),
        (GERMAN, "cp1252", "CP1252 (Windows)"),
        (GERMAN, "cp437", "CP437 (DOS)"),
    ],
)
def test_classes_have_their_names_and_the_report_says_how_they_were_read(
    look: Look, names: list[str], encoding: str, called: str
) -> None:
    found = look(build_named_zip([name.encode(encoding) for name in names]))
    assert set(found.classes) == {name.split("/")[0] for name in names}
    note = (
        f"{len(names)} names say no encoding and were read as {called}, by their letters; "
        "names=… names another encoding"
    )
    assert found.notes == (note,)


@pytest.mark.parametrize("flags", [0, 1 << 11])
def test_utf8_is_read_as_it_is_and_needs_no_note(look: Look, flags: int) -> None:
    found = look(build_named_zip([name.encode() for name in JAPANESE[:4]], flags))
    assert set(found.classes) == {"犬", "猫", "ねこ", "イヌ"} and found.notes == ()


def test_a_name_that_says_utf8_and_is_none_is_refused(look: Look) -> None:
    with pytest.raises(ArchiveHostile, match="not the UTF-8 that it claims to be"):
        look(build_named_zip([b"K\xe4fer/1.png"], 1 << 11))


def test_the_field_of_the_unicode_path_names_an_entry(look: Look) -> None:
    raw = "Käfer/1.png".encode("cp437")
    found = look(build_named_zip([raw], extra=build_unicode_path_field("甲虫/1.png", raw)))
    assert found.classes == {"甲虫": 1} and found.notes == ()


@pytest.mark.parametrize("change", ["other name", "other version"])
def test_a_unicode_path_of_another_name_says_nothing(look: Look, change: str) -> None:
    raw = "Käfer/1.png".encode("cp437")
    version, of = (1, b"other") if change == "other name" else (2, raw)
    assert look(
        build_named_zip([raw], extra=build_unicode_path_field("甲虫/1.png", of, version))
    ).classes == {"Käfer": 1}


@pytest.mark.parametrize("path", ["../../etc/1.png", "/etc/1.png", "a\\b.png", "a\n/1.png"])
def test_a_unicode_path_is_checked_as_every_name(look: Look, path: str) -> None:
    raw = "Käfer/1.png".encode("cp437")
    with pytest.raises(ArchiveHostile, match="entry"):
        look(build_named_zip([raw], extra=build_unicode_path_field(path, raw)))


def test_one_encoding_holds_for_all_names_that_say_none(look: Look) -> None:
    # The bytes of 膜 in GBK are valid UTF-8, too.
    names = [name.encode("gbk") for name in ("膜/1.png", "狗/1.png", "苹果/1.png")]
    assert set(look(build_named_zip(names)).classes) == {"膜", "狗", "苹果"}


def list_zip_names(tmp_path: Path, data: bytes, encoding: str) -> tuple[list[str], list[str]]:
    (tmp_path / "a.zip").write_bytes(data)
    fd = os.open(tmp_path / "a.zip", os.O_RDONLY)
    try:
        members = list_regular_zip_files(fd, ArchiveLimits(), names=encoding)
    finally:
        os.close(fd)
    return members.names, members.notes


@pytest.mark.parametrize(
    ("name", "encoding", "said"),
    [
        ("猫/1.png", "gbk", "GBK"),
        ("жук/1.png", "cp866", "cp866"),
        ("жук/1.png", "KOI8-R", "koi8_r"),
        ("딱정벌레/1.png", "euc-kr", "euc_kr"),
        ("甲蟲/1.png", "Big5", "big5"),
        ("犬/1.png", "Shift-JIS", "shift_jis"),
        ("犬/1.png", "sjis", "shift_jis"),
    ],
)
def test_the_sender_can_name_the_encoding(
    name: str, encoding: str, said: str, tmp_path: Path
) -> None:
    found, notes = list_zip_names(tmp_path, build_named_zip([name.encode(encoding)]), encoding)
    assert found == [name]
    assert notes == [f"1 name says no encoding and was read as {said}, as the sender said"]


@pytest.mark.parametrize(
    "encoding", ["utf-7", "zip", "idna", "hex", "unicode_escape", "nonsense", "../gbk"]
)
def test_an_encoding_that_is_none_is_refused(encoding: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveInvalid, match="is no encoding of names; possible are utf-8, gbk"):
        list_zip_names(tmp_path, build_named_zip([b"a/1.png"]), encoding)


def test_a_name_that_is_not_in_the_encoding_of_the_sender_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ArchiveInvalid, match=r"is not in gbk, which names=gbk says\. Leave it out, or name another"
    ):
        list_zip_names(tmp_path, build_named_zip([b"K\xff\xff/1.png"]), "gbk")


def test_the_sender_s_encoding_holds_at_check_and_at_ingest(
    take: Callable[..., IngestedBatch], tmp_path: Path
) -> None:
    (tmp_path / "a.zip").write_bytes(
        build_named_zip([f"жук/{n}.png".encode("cp866") for n in range(3)])
    )
    reading = BatchReadingSettings(BatchReadingOptions(names="cp866"))
    assert summarise_archive_and_digest_content(
        tmp_path / "a.zip", "zip", ArchiveLimits(), reading
    ).classes == {"жук": 3}
    taken = take((tmp_path / "a.zip").read_bytes(), reading=reading, held_out_share=0)
    assert taken.classes == {"жук": 3}
    assert taken.report["notes"] == [
        "3 names say no encoding and were read as cp866, as the sender said"
    ]
