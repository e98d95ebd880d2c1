"""The catalogue of the learning code, made once per process of tests: its schemas take a tenth of a
second.
"""

import copy
from functools import cache
from typing import Any

from core.learning import catalogue as learning


def copy_catalogue() -> dict[str, Any]:
    """Return a copy of the catalogue, which a test file may change."""
    return copy.deepcopy(_build_catalogue())


@cache
def _build_catalogue() -> dict[str, Any]:
    return learning.build_recipe_catalogue()
