"""The form that adopts a trained classifier."""

from typing import Any

import pytest

from api.pages.adopt import _parse_uploaded_base_form
from core.errors import Invalid

GIVEN = {"name": "birds", "architecture": '{"name": "resnet18"}', "classes": "a\nb"}


@pytest.mark.parametrize(
    ("size", "expected"), [("", None), ("8", 8), ("224", 224), ("0064", 64), ("1024", 1024)]
)
def test_a_side_of_8_to_1024_pixels_is_taken(size: str, expected: int | None) -> None:
    assert _parse_uploaded_base_form({**GIVEN, "image_size": size}).image_size == expected


@pytest.mark.parametrize("size", ["7", "1025", "000640000", "-64", "6.4", "x", "٦٤", "9" * 5000])
def test_another_side_is_refused_by_its_field(size: Any) -> None:
    with pytest.raises(Invalid) as refused:
        _parse_uploaded_base_form({**GIVEN, "image_size": size})
    assert [field["field"] for field in refused.value.fields] == ["image_size"]
