"""Prefixed, sortable ids such as `mdl_01j…`.

An id consists of 48 bits of milliseconds and 80 random bits in Crockford base 32 (the layout of a
ULID, in lower case). Ids therefore sort by creation time and need no round trip to the database.
"""

import re
import secrets
import time

# Crockford's base 32 leaves out i, l, o and u, which are mistaken for other characters.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
PREFIXES = ("mdl", "tsk", "job", "ver", "bas", "key", "own", "upl", "whk", "dlv", "edt")
_PATTERN = re.compile(rf"(?:{'|'.join(PREFIXES)})_[{_ALPHABET}]{{26}}")
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
"""For JSON Schemas, whose `$` is the end of the text. In Python, use `has_name_form`.

Python's `$` also matches before a final line break.
"""


def new_id(prefix: str) -> str:
    """Return a new id such as `job_01k3…` (prefix, underscore, 26 characters).

    Raises:
        ValueError: the prefix is not in `PREFIXES`.
    """
    if prefix not in PREFIXES:
        raise ValueError(f"unknown id prefix {prefix!r}")
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    digits = [_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5)]
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str, prefix: str | None = None) -> bool:
    """Return True if `text` has the form of an id, with a given prefix if one is named."""
    return bool(_PATTERN.fullmatch(text)) and (prefix is None or text.startswith(f"{prefix}_"))


def has_name_form(text: str) -> bool:
    """Return True if `text` has the form of a name: lower-case ASCII, at most 63 characters."""
    return bool(re.fullmatch(NAME_PATTERN, text))


def is_allowed_model_or_alias_name(text: str) -> bool:
    """Return True if `text` is allowed as the name of a model or alias: it must not look like an
    id.
    """
    # Paths take a name in place of an id, so no name may look like one.
    return has_name_form(text) and not text.startswith(tuple(f"{p}_" for p in PREFIXES))
