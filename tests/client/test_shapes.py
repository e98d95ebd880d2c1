"""Objects of a response are read as the class that fits their keys best."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from perennial.shapes import ResponseObject, convert_from_json


@dataclass(frozen=True, kw_only=True)
class Photo(ResponseObject):
    path: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Crop(ResponseObject):
    path: str
    box: list[int]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Frame(ResponseObject):
    path: str
    second: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"path": "a.png"}, Photo),
        ({"path": "a.png", "box": [0, 0, 8, 8]}, Crop),
        ({"path": "a.png", "second": 1.5}, Frame),
    ],
)
def test_an_object_is_read_as_the_class_that_has_its_keys(
    value: dict[str, Any], expected: type[Any]
) -> None:
    for kind in (Photo | Crop | Frame, Crop | Photo | Frame):
        assert type(convert_from_json(kind, value)) is expected  # type: ignore[arg-type]
