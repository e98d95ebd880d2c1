"""One term for each thing, on pages, in help texts and in documents alike."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "docs/**/*.md", "api/templates/*.html", "api/static/*.js")
FILES = sorted(path for place in PLACES for path in ROOT.glob(place))
OTHER_NAMES = re.compile(
    r"\b(?:submit|upload)(?:s|ting|ing)? (?:a|the|your) (?:\w+ )?batch\b", re.I
)
"""Other words for sending a batch. The command and the client's method are `submit`."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_batch_is_sent(path: Path) -> None:
    assert OTHER_NAMES.findall(path.read_text(encoding="utf-8")) == []
