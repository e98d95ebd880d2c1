"""Merging of JSON patches (RFC 7396), and of recipes."""

import copy
from collections.abc import Mapping
from typing import Any

from core.protocol.document import JsonObject


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: `patch` over `target`; null removes."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    out: JsonObject = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def merge_recipe(target: Mapping[str, Any], patch: Mapping[str, Any]) -> JsonObject:
    """`merge_patch`, where a method may be a string (its name), and another method starts afresh.

    The hyper-parameters of one method mean nothing to another, so a patch that names another method
    replaces the whole block.
    """
    before, after = _named(target), _named(patch)
    if _another(before.get("method"), after.get("method")):
        del before["method"]
    merged: JsonObject = merge_patch(before, after)
    return merged


def _another(old: Any, new: Any) -> bool:
    """Whether `new` names another method than `old`."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return False
    return bool(new.get("name", old.get("name")) != old.get("name"))


def _named(recipe: Mapping[str, Any]) -> JsonObject:
    method = recipe.get("method")
    return {**recipe, "method": {"name": method}} if isinstance(method, str) else dict(recipe)
