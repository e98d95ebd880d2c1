"""Merging of JSON patches (RFC 7396) and of recipes."""

import copy
from collections.abc import Mapping
from typing import Any

from core.contract.document import JsonObject


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch to `target` (RFC 7396): null removes a key.

    Neither argument is modified.
    """
    if not isinstance(patch, Mapping):
        # A copy, so that a change of the result never changes a stored recipe.
        return copy.deepcopy(patch)
    out: JsonObject = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = apply_merge_patch(out.get(key), value)
    return out


def merge_recipe(target: Mapping[str, Any], patch: Mapping[str, Any]) -> JsonObject:
    """Merge a recipe patch into a recipe; a method may be given as a string, its name.

    Hyper-parameters of one method mean nothing to another, so a patch that names a different method
    replaces the whole block.
    """
    before, after = _expand_method_name_to_object(target), _expand_method_name_to_object(patch)
    if _does_recipe_name_other_method(before.get("method"), after.get("method")):
        # `before` is a new object, so that the caller's recipe does not change.
        del before["method"]
    merged: JsonObject = apply_merge_patch(before, after)
    return merged


def _does_recipe_name_other_method(old: Any, new: Any) -> bool:
    """Return whether recipe `new` names a different method from `old`."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return False
    return bool(new.get("name", old.get("name")) != old.get("name"))


def _expand_method_name_to_object(recipe: Mapping[str, Any]) -> JsonObject:
    method = recipe.get("method")
    return {**recipe, "method": {"name": method}} if isinstance(method, str) else dict(recipe)
