"""List of all problems: a new one is a file with a `Problem`, and its line here."""

from __future__ import annotations

from typing import Any

from core.contract.problem import CLASSIFICATION
from core.learning.problems import (  # noqa: F401
    classification,
)
from core.learning.problems.problem import DataError, Problem
from core.learning.problems.registration import PROBLEMS, register_problem

__all__ = ["PROBLEMS", "get_problem", "register_problem"]


def get_problem(name: str | None) -> Problem[Any]:
    """Return a problem by its name; None means classification, as in documents that name none.

    Raises DataError for an unknown one.
    """
    name = name or CLASSIFICATION
    if name not in PROBLEMS:
        raise DataError(f"unknown problem {name!r}; known: {', '.join(sorted(PROBLEMS))}")
    return PROBLEMS[name]
