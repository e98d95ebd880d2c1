"""The list of classes of a classifier: its forms, and what is wrong with it."""

import json

import pytest

from core.errors import Invalid, LabelsInvalid
from core.ingest.class_list import parse_class_list


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\nowl",
        "\ufeffcat\r\ndog \r\nowl\r\n",
        '["cat", "dog", "owl"]',
        '{"0": "cat", "1": "dog", "2": "owl"}',
        '{"owl": 2, "cat": 0, "dog": 1}',
    ],
)
def test_each_form_names_the_rows_in_order(text: str) -> None:
    assert parse_class_list(text, 10) == ["cat", "dog", "owl"]


def test_names_are_compared_after_the_rules_for_labels() -> None:
    assert parse_class_list("Zoe\u0308\nAnna", 10) == ["Zoë", "Anna"]
    with pytest.raises(Invalid, match="“Zoë” in row 1 and in row 3"):
        parse_class_list("Zoe\u0308\nAnna\nZoë", 10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 names; 2 to 3 are allowed"),
        ("cat", "1 names"),
        ("a\nb\nc\nd", "4 names"),
        ('["cat", 3]', "something else than names"),
        ('["cat", "dog"', "begins like JSON"),
        ("[" * 100_000, "begins like JSON"),
        ('{"0": "cat", "2": "dog"}', "must be 0 to 1"),
        ('{"cat": 1, "dog": 1}', "must be 0 to 1"),
        ('{"0": ["n01", "cat"], "1": ["n02", "dog"]}', "something else than names"),
        ("{}", "0 names"),
    ],
)
def test_a_list_of_another_form_is_refused_with_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words) as refused:
        parse_class_list(text, 3)
    assert refused.value.fields[0]["field"] == "classes"


@pytest.mark.parametrize("name", ["", " ", "d" * 101, "a\0", "a\nb", "a\u202eb"])
def test_a_name_that_no_label_may_have_is_refused_with_its_row(name: str) -> None:
    with pytest.raises(LabelsInvalid, match="row 2 of classes") as refused:
        parse_class_list(json.dumps(["cat", name]), 3)
    assert refused.value.fields == [{"field": "classes", "message": "row 2 cannot be a name"}]
