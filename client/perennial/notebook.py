"""What a notebook shows of answers: see `describe`."""

from typing import Any


def describe(answer: Any) -> str | None:
    return None
