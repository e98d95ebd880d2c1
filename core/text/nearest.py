"""Suggestions for unknown names: the nearest known name, even in another block.

Known names are dotted paths of a JSON Schema (`image.size`, `optimizer.lr`). A field at the wrong
depth, or with its path written as one word, is therefore found, too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

LIKE_ENOUGH = 0.65
"""Least `SequenceMatcher.ratio`, 0 to 1. Names below it have little in common."""
# SequenceMatcher takes time that is quadratic in the length, and clients choose the names.
LONGEST = 64
"""Characters of a name that are compared; existing names are shorter."""
MAX_DEPTH = 6
# Below 1, so that a name that is spelt out precedes an abbreviation.
_INITIALS = 0.9
_WORD = re.compile(r"[A-Z]?[a-z0-9+]+|[A-Z]+(?![a-z])")


def find_nearest_field_path(name: str, known_paths: Iterable[str], inside: str = "") -> str | None:
    """Return the known field path that a mistyped `name` in the block `inside` probably means, or
    None.

    A path is similar to a name by its last part or as a whole (`image_size` is `image.size`), or if
    one abbreviates the other (`learning_rate` is `optimizer.lr`). Among equally similar paths, one
    in the same block wins, then the shallowest.
    """
    best: tuple[float, bool, int, str] | None = None
    for path in known_paths:
        block = path.rpartition(".")[0]
        candidate = (
            _score_similarity_to_dotted_path(name[:LONGEST], path),
            block == inside,
            -path.count("."),
            path,
        )
        # Compared without the path itself: of equals, the first one stays.
        if candidate[0] >= LIKE_ENOUGH and (best is None or candidate[:3] > best[:3]):
            best = candidate
    return None if best is None else best[3]


def format_field_path_suggestion(name: str, known_paths: Iterable[str], inside: str = "") -> str:
    """Return a suggestion for a mistyped field, such as `did you mean image.size?

    ` to precede the list of allowed names, or "".
    """
    suggestion = find_nearest_field_path(name, known_paths, inside)
    return "" if suggestion is None else f"did you mean {suggestion}? "


def describe_unknown_field(
    name: str, known_paths: Sequence[str], inside: str = "", allowed: Sequence[str] = ()
) -> str:
    """Return the error message for a field that does not exist.

    Args:
        name: the unknown field.
        known_paths: dotted paths to search for the nearest one, see `list_schema_property_paths`.
        inside: dotted path of the block that contains the field; empty means the top level.
        allowed: the names allowed in this block; if empty, the children of `inside` among `known_paths`.
    """
    names = sorted(allowed or list_child_field_names(known_paths, inside))
    listed = f"known here: {', '.join(names)}" if names else "nothing is known here"
    return f"unknown field; {format_field_path_suggestion(name, known_paths, inside)}{listed}"


def list_child_field_names(known_paths: Iterable[str], inside: str) -> list[str]:
    """Return the names of the fields directly within a block, without deeper ones."""
    start = f"{inside}." if inside else ""
    return [
        p[len(start) :] for p in known_paths if p.startswith(start) and "." not in p[len(start) :]
    ]


def list_schema_property_paths(schema: Mapping[str, Any]) -> list[str]:
    """Return the dotted paths of all properties of a JSON Schema, outer ones first.

    References and alternatives are followed, down to `MAX_DEPTH`.
    """
    paths: dict[str, None] = {}
    _collect_schema_paths(schema, schema, "", paths, 0)
    return sorted(paths, key=lambda path: path.count("."))


def _collect_schema_paths(
    root: Mapping[str, Any], node: Mapping[str, Any], at: str, paths: dict[str, None], depth: int
) -> None:
    # A schema may refer to itself.
    if depth > MAX_DEPTH:
        return
    if "$ref" in node:
        node = root.get("$defs", {}).get(str(node["$ref"]).rpartition("/")[2], {})
    for name, inner in node.get("properties", {}).items():
        path = f"{at}.{name}" if at else name
        paths[path] = None
        _collect_schema_paths(root, inner, path, paths, depth + 1)
    for alternatives in ("anyOf", "allOf", "oneOf"):
        for inner in node.get(alternatives, []):
            _collect_schema_paths(root, inner, at, paths, depth + 1)


def _score_similarity_to_dotted_path(name: str, path: str) -> float:
    words = _split_words(name)
    return max(
        _score_word_similarity(words, _split_words(path.rpartition(".")[2])),
        _score_word_similarity(words, _split_words(path)),
    )


def _score_word_similarity(words: tuple[str, ...], known_words: tuple[str, ...]) -> float:
    if words == known_words:
        return 1.0
    if _is_abbreviation(words, known_words) or _is_abbreviation(known_words, words):
        return _INITIALS
    matcher = SequenceMatcher(None, " ".join(words), " ".join(known_words), autojunk=False)
    # Cheap upper bounds first: most pairs have nothing in common.
    if matcher.real_quick_ratio() < LIKE_ENOUGH or matcher.quick_ratio() < LIKE_ENOUGH:
        return 0.0
    return matcher.ratio()


def _is_abbreviation(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    return len(short) == 1 and len(long) > 1 and short[0] == "".join(word[0] for word in long)


# The same known paths are split again for each unknown name.
@lru_cache(maxsize=4096)
def _split_words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))
