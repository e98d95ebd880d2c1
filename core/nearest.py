"""What a person probably meant by a name that does not exist: the nearest known one, also when it stands elsewhere.

Known names are dotted paths of a JSON Schema (`image.size`, `optimizer.lr`), so a field that was put at the wrong
depth, or whose path was written as one word, is found too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

LIKE_ENOUGH = 0.65
"""Of `SequenceMatcher.ratio`, 0 to 1: below it two names have little to do with each other."""
LONGEST = 64
"""Characters of a name that are compared; names that exist are shorter."""
MAX_DEPTH = 6
_INITIALS = 0.9
_WORD = re.compile(r"[A-Z]?[a-z0-9+]+|[A-Z]+(?![a-z])")


def nearest(name: str, known: Iterable[str], inside: str = "") -> str | None:
    """The known path that `name`, written within the block `inside`, probably stands for; None: none is like it.

    A path is like a name by its last part or as a whole (`image_size` is `image.size`), or when one abbreviates the
    other (`learning_rate` is `optimizer.lr`). Among equals the one in the same block wins, then the shallowest.
    """
    best: tuple[float, bool, int, str] | None = None
    for path in known:
        block = path.rpartition(".")[0]
        found = (_likeness(name[:LONGEST], path), block == inside, -path.count("."), path)
        if found[0] >= LIKE_ENOUGH and (best is None or found[:3] > best[:3]):
            best = found
    return None if best is None else best[3]


def did_you_mean(name: str, known: Iterable[str], inside: str = "") -> str:
    """`did you mean image.size? `, to put before the list of what is allowed; empty when nothing is like it."""
    found = nearest(name, known, inside)
    return "" if found is None else f"did you mean {found}? "


def unknown_field(name: str, known: Sequence[str], inside: str = "", allowed: Sequence[str] = ()) -> str:
    """The message for a field that does not exist.

    Args:
        known: dotted paths to look for the nearest in, see `paths_of`.
        inside: the dotted path of the block that the field was written in; empty: the top.
        allowed: the names that this block has; empty: the children of `inside` among `known`.
    """
    names = sorted(allowed or children(known, inside))
    listed = f"known here: {', '.join(names)}" if names else "nothing is known here"
    return f"unknown field; {did_you_mean(name, known, inside)}{listed}"


def children(known: Iterable[str], inside: str) -> list[str]:
    """The names directly within a block."""
    start = f"{inside}." if inside else ""
    return [p[len(start) :] for p in known if p.startswith(start) and "." not in p[len(start) :]]


def paths_of(schema: Mapping[str, Any]) -> list[str]:
    """The dotted path of every property of a JSON Schema, through references and alternatives, outer ones first."""
    found: dict[str, None] = {}
    _walk(schema, schema, "", found, 0)
    return sorted(found, key=lambda path: path.count("."))


def _walk(
    root: Mapping[str, Any], node: Mapping[str, Any], at: str, found: dict[str, None], depth: int
) -> None:
    if depth > MAX_DEPTH:
        return
    if "$ref" in node:
        node = root.get("$defs", {}).get(str(node["$ref"]).rpartition("/")[2], {})
    for name, inner in node.get("properties", {}).items():
        path = f"{at}.{name}" if at else name
        found[path] = None
        _walk(root, inner, path, found, depth + 1)
    for alternatives in ("anyOf", "allOf", "oneOf"):
        for inner in node.get(alternatives, []):
            _walk(root, inner, at, found, depth + 1)


def _likeness(name: str, path: str) -> float:
    given = _words(name)
    return max(_alike(given, _words(path.rpartition(".")[2])), _alike(given, _words(path)))


def _alike(given: tuple[str, ...], known: tuple[str, ...]) -> float:
    if given == known:
        return 1.0
    if _abbreviates(given, known) or _abbreviates(known, given):
        return _INITIALS
    matcher = SequenceMatcher(None, " ".join(given), " ".join(known), autojunk=False)
    # Cheap upper bounds first: most pairs have nothing in common.
    if matcher.real_quick_ratio() < LIKE_ENOUGH or matcher.quick_ratio() < LIKE_ENOUGH:
        return 0.0
    return matcher.ratio()


def _abbreviates(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    return len(short) == 1 and len(long) > 1 and short[0] == "".join(word[0] for word in long)


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))
