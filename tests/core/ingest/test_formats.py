"""Upload formats as their files show them."""

import pytest

from core.ingest.readers.registry import FORMATS, READERS
from perennial.formats import FIRST_BYTES, UploadFormat, UploadFormats

SOME = UploadFormats(
    (
        UploadFormat((".zip",), ((0, b"PK"),)),
        UploadFormat((".gz",)),
        UploadFormat((".tar.gz", ".tgz"), ((2, b"\x08"), (4, b"ab"))),
    )
)


@pytest.mark.parametrize(
    ("name", "stripped"),
    [
        ("week 31.zip", "week 31"),
        ("WEEK.ZIP", "WEEK"),
        ("a.tar.gz", "a"),
        ("a.tar", "a.tar"),
        ("a.zip.tgz", "a.zip"),
        ("zip", "zip"),
        ("", ""),
    ],
)
def test_a_name_loses_the_longest_ending_that_fits(name: str, stripped: str) -> None:
    assert SOME.strip_archive_ending(name) == stripped
    assert SOME.has_archive_ending(name) == (name != stripped)


@pytest.mark.parametrize(
    ("first", "has_mark"),
    [
        (b"PK\x03", True),
        (b"..\x08", True),
        (b"....ab", True),
        (b"...ab", False),
        (b" PK", False),
        (b"P", False),
        (b"", False),
    ],
)
def test_a_mark_counts_at_its_offset_alone(first: bytes, has_mark: bool) -> None:
    assert SOME.has_any_format_signature(first) is has_mark


def test_people_read_the_first_ending_of_each_format() -> None:
    assert str(SOME) == "zip, gz or tar.gz"


def test_every_reader_declares_endings_of_its_own_and_marks_that_the_client_reads() -> None:
    endings = FORMATS.endings
    assert len(set(endings)) == len(endings)
    assert all(each == each.lower() and each.startswith(".") for each in endings)
    assert all(reader.endings and all(reader.endings) for reader in READERS.values())
    marks = [mark for one in FORMATS.each for mark in one.marks]
    assert all(mark and offset + len(mark) <= FIRST_BYTES for offset, mark in marks)


def test_every_reader_but_a_special_one_has_a_mark() -> None:
    assert all(reader.marks or reader.special_of for reader in READERS.values())
