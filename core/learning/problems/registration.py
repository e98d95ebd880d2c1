"""Problems by name, each of which registers itself when its file is imported."""

from __future__ import annotations

from typing import Any, TypeVar

from core.learning.problems.problem import Problem

PROBLEMS: dict[str, Problem[Any]] = {}
AnyProblem = TypeVar("AnyProblem", bound=type[Problem[Any]])


def register_problem(problem: AnyProblem) -> AnyProblem:
    """Register a problem class under its name, as a decorator.

    Raises ValueError if the name is taken.
    """
    if problem.name in PROBLEMS:
        raise ValueError(f"two problems are named {problem.name!r}")
    PROBLEMS[problem.name] = problem()
    return problem
