"""The catalogue of the learning code, made once per process of tests: its schemas take a tenth of a
second.
"""

import copy
from functools import cache
from typing import Any

from core.learning import catalogue as learning


def catalogue() -> dict[str, Any]:
    """A copy of the catalogue, which a test file may change."""
    return copy.deepcopy(_made())


@cache
def _made() -> dict[str, Any]:
    return learning.build_recipe_catalogue()
