"""Characters allowed in names and reasons: living scripts and attacks."""

import unicodedata

import pytest

from core.errors import LabelsInvalid
from core.ingest.names import check_and_normalise_class_label
from core.tasks.class_names import normalise_class_name_spelling
from perennial import characters

FAIR = [
    "week 31", "Straße", "猫", "고양이", "Ａ", "שלום", "می\u200cخواهم", "क्\u200dष", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥",
    "1\ufe0f\u20e3", "葛\U000e0100", "a (2)/b – c", "naïve", "C++",
]  # fmt: skip
"""Realistic names, with joiners and selectors if their scripts have them."""
FOUL = {
    "line\nbreak": ("U+000A (LINE FEED)", 5),
    "\x1b[31mred": ("U+001B (ESCAPE)", 1),
    "nul\0": ("U+0000 (NULL)", 4),
    "\u202egnp.tac": ("U+202E (RIGHT-TO-LEFT OVERRIDE)", 1),
    "a\u2066b": ("U+2066 (LEFT-TO-RIGHT ISOLATE)", 2),
    "\u200fשלום": ("U+200F (RIGHT-TO-LEFT MARK)", 1),
    "cat\u200b": ("U+200B (ZERO WIDTH SPACE)", 4),
    "\ufeffcat": ("U+FEFF (ZERO WIDTH NO-BREAK SPACE)", 1),
    "ca\u2060t": ("U+2060 (WORD JOINER)", 3),
    "ca\u00adt": ("U+00AD (SOFT HYPHEN)", 3),
    "cat\u200d": ("U+200D (ZERO WIDTH JOINER)", 4),
    "ca\u200ct": ("U+200C (ZERO WIDTH NON-JOINER)", 3),
    "خواهم\u200c": ("U+200C (ZERO WIDTH NON-JOINER)", 6),
    "👩\u200d\u200d👩": ("U+200D (ZERO WIDTH JOINER)", 2),
    "cat\ufe0f": ("U+FE0F (VARIATION SELECTOR-16)", 4),
    "cat\U000e0041": ("U+E0041 (TAG LATIN CAPITAL LETTER A)", 4),
    "ㅤ": ("U+3164 (HANGUL FILLER)", 1),
    "a\u2028b": ("U+2028 (LINE SEPARATOR)", 2),
}


@pytest.mark.parametrize("text", FAIR)
def test_a_name_in_any_living_script_is_kept(text: str) -> None:
    assert characters.validate_and_normalise_name(text) == unicodedata.normalize("NFC", text)
    assert check_and_normalise_class_label(text, "here") == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("text", FOUL, ids=ascii)
def test_a_character_that_cannot_be_seen_is_named_with_its_place(text: str) -> None:
    called, place = FOUL[text]
    with pytest.raises(ValueError) as refused:
        characters.validate_and_normalise_name(text)
    assert f"{called} at position {place}" in str(refused.value)


@pytest.mark.parametrize("text", FOUL, ids=ascii)
def test_a_label_is_as_strict_as_any_name(text: str) -> None:
    with pytest.raises(LabelsInvalid) as refused:
        check_and_normalise_class_label(text, "the folder")
    assert FOUL[text][0] in refused.value.detail


def test_a_name_is_kept_in_nfc_without_blanks_around_it() -> None:
    assert characters.validate_and_normalise_name("  Cafe\u0301 ") == "Café"
    with pytest.raises(ValueError, match="blank"):
        characters.validate_and_normalise_name("  ")


def test_a_name_that_normalisation_makes_too_long_is_refused() -> None:
    assert len(unicodedata.normalize("NFC", "\u0958" * 60)) == 120
    with pytest.raises(ValueError, match="at most 100"):
        characters.validate_and_normalise_name("\u0958" * 60)
    with pytest.raises(ValueError, match="at most 1000"):
        characters.validate_and_normalise_reason("\u0958" * 600)


def test_a_reason_may_have_lines_and_the_marks_of_keyboards() -> None:
    text = "worse on owls\n\t\u200fשלום\u200e, می\u200cخواهم"
    assert characters.validate_and_normalise_reason(text) == text


@pytest.mark.parametrize(
    "text", ["\u202ex", "x\u2069", "x\U000e0041", "x\u200b", "x\0", "x\x1b[2J", "x\ufeff"]
)
def test_a_reason_that_hides_or_turns_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="U\\+"):
        characters.validate_and_normalise_reason(text)


def test_every_code_point_that_unicode_calls_ignorable_is_refused_alone() -> None:
    """Format characters come from this Python's Unicode data, so none is omitted by hand."""
    marks_of_numbers = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    marks_of_glyphs = {*range(0x13430, 0x13440)}
    for point in range(0x110000):
        if (
            unicodedata.category(chr(point)) == "Cf"
            and point not in marks_of_numbers | marks_of_glyphs
        ):
            assert characters.find_invalid_name_character(f"a{chr(point)}b") is not None, hex(point)


def test_a_joiner_makes_no_other_class() -> None:
    assert normalise_class_name_spelling("می\u200cخواهم") == normalise_class_name_spelling(
        "میخواهم"
    )
