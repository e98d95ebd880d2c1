"""What a person names: an id, or the name by which a list shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from perennial.cli.output import when
from perennial.errors import ConfigError, NotFound
from perennial.text import one_line


def find_id(
    wanted: str, kind: str, prefix: str, items: Iterable[Any], name_of: Callable[[Any], str | None]
) -> str:
    """Return the id of what was named.

    Args:
        kind: as a person calls it, such as `key`.
        prefix: of its ids; what begins with it is one, and nothing is asked.
        items: those that there are, read where a name was given.

    Raises:
        NotFound: none has this name.
        ConfigError: several have it.
    """
    if wanted.startswith(prefix):
        return wanted
    found = [one for one in items if name_of(one) == wanted]
    if not found:
        raise NotFound(404, {"detail": f"There is no {kind} with the name or id {wanted!r}."})
    if len(found) > 1:
        each = "\n".join(f"  {one_line(one.id)}, made {when(one.created_at)}" for one in found)
        raise ConfigError(f"{len(found)} have the name {wanted!r}; say the id of one:\n{each}")
    return str(found[0].id)
