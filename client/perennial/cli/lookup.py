"""Lookup of objects that a person names by id or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from perennial.cli.output import format_time
from perennial.errors import ConfigError, NotFound
from perennial.text import make_text_one_line


def resolve_id_or_name(
    id_or_name: str,
    kind: str,
    prefix: str,
    items: Iterable[Any],
    name_of: Callable[[Any], str | None],
) -> str:
    """Return the id of an object that a user names by id or name.

    Args:
        id_or_name: id or name.
        kind: word for messages, such as `key`.
        prefix: prefix of ids; a text that begins with it is returned without a request.
        items: all objects, read only if a name was given.

    Raises:
        NotFound: no object has this name.
        ConfigError: several objects have it.
    """
    if id_or_name.startswith(prefix):
        return id_or_name
    matches = [one for one in items if name_of(one) == id_or_name]
    if not matches:
        raise NotFound(404, {"detail": f"There is no {kind} with the name or id {id_or_name!r}."})
    # No guess, because callers delete or revoke what is found.
    if len(matches) > 1:
        each = "\n".join(
            f"  {make_text_one_line(one.id)}, made {format_time(one.created_at)}" for one in matches
        )
        raise ConfigError(
            f"{len(matches)} have the name {id_or_name!r}; say the id of one:\n{each}"
        )
    return str(matches[0].id)
