"""Checks of values from the service before they reach terminals, files, shells or URLs.

The client trusts no response. `escape_control_characters` makes a value a line,
`require_safe_filename` a file name, and `quote_shell_word` a word of a suggested command.
`build_api_path` and `require_location_below_path` make it a path of the API. Each refuses or escapes
everything else; a refusal is a `BadAnswer` with one sentence.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from urllib.parse import quote, urlsplit

from perennial.errors import BadAnswer
from perennial.text import escape_control_characters, make_text_one_line

MAX_NAME_BYTES = 200
"""Maximum bytes of a file name: file systems allow 255, and a suffix follows."""
MAX_ECHOED_CHARS = 2000
"""Maximum characters of a value that is sent back to the service."""
_LAYOUT = "\n\t"
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\:*?\"<>|]+")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Device names of Windows, which no file can have."""
# Without blanks and controls, which could split a header or a URL.
_ECHOED = re.compile(r"[\x21-\x7e]+")


def require_safe_filename(text: object) -> str:
    """Check a file name, which may only denote a file in the folder it is joined to.

    Raises:
        BadAnswer: the name is unsafe.
    """
    name = text if isinstance(text, str) else ""
    # Leading dots and hyphens would hide a file or make it an option; Windows drops trailing dots
    # and blanks.
    is_safe = (
        _NAME.fullmatch(name) is not None
        and escape_control_characters(name) == name
        and not name.startswith((".", "-", " "))
        and not name.endswith((".", " "))
        and _RESERVED.fullmatch(name) is None
        and len(name.encode()) <= MAX_NAME_BYTES
    )
    if not is_safe:
        raise BadAnswer(
            f"The service names a file {quote_refused_value(text)}, which is no safe name. Nothing was "
            f"written to it."
        )
    return name


def quote_shell_word(text: object) -> str:
    """Return a value as one quoted word of a suggested shell command.

    Raises:
        BadAnswer: it begins with a hyphen, so a command would parse it as an option, or it cannot
            be printed.
    """
    word = str(text)
    # Quoting does not help here: a quoted hyphen still begins an option.
    if not word or word.startswith("-") or make_text_one_line(word) != word:
        raise BadAnswer(
            f"The service names something {quote_refused_value(text)}, which is no name or id."
        )
    return shlex.quote(word)


def build_api_path(*parts: str | int) -> str:
    """Build an API path `/v1/…` from parts, each escaped as one segment.

    Raises:
        BadAnswer: one of them would lead to another path.
    """
    for part in parts:
        text = str(part)
        # Dots would be resolved to another path, and a surrogate cannot be encoded in a URL.
        if text in ("", ".", "..") or len(text) > MAX_ECHOED_CHARS or _has_surrogates(text):
            raise BadAnswer(f"{quote_refused_value(part)} is no name or id of the service.")
    # safe='': by default, quote keeps slashes, and a name could lead to another path.
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def require_location_below_path(location: str, base_url: str, below: str) -> str:
    """Return the path of a `Location` header if it is on the service itself. Raises BadAnswer.

    Args:
        base_url: URL of the service.
        below: the path whose direct child it must be, such as `/v1/uploads/`.

    Raises:
        BadAnswer: it leads elsewhere.
    """
    try:
        parts, base = urlsplit(location), urlsplit(base_url)
        is_here = not parts.netloc or (parts.scheme, parts.netloc) == (base.scheme, base.netloc)
    except ValueError:  # unbalanced brackets
        is_here = False
    # The base URL may have a path of its own, as behind a proxy; the result must not repeat it.
    if is_here and location.startswith(base_url):
        location = location[len(base_url) :]
        parts = urlsplit(location)
    child = parts.path.removeprefix(below) if is_here and parts.path.startswith(below) else ""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", child) or parts.query or parts.fragment:
        raise BadAnswer(
            f"The service sends this client to {quote_refused_value(location)}, which is no path below "
            f"{below}."
        )
    return below + child


def require_whole_number_in_response(value: object, name: str) -> int:
    """Check that a value of a response, such as a version's number, is a whole number.

    Raises:
        BadAnswer: it is not an integer, or is negative.
    """
    # In Python, True is an int.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise BadAnswer(
            f"The service says {quote_refused_value(value)} where the {name} should be a whole number."
        )
    return value


def require_number_in_response_header(value: str | None, name: str) -> int:
    """Parse the whole number in a response header.

    Raises:
        BadAnswer: the header is missing, or is not a number.
    """
    # int() would accept signs, blanks and other digits; 18 digits always fit into 64 bits.
    if value is None or re.fullmatch(r"[0-9]{1,18}", value) is None:
        raise BadAnswer(
            f"The service sends {quote_refused_value(value)} as {name}, where a number belongs."
        )
    return int(value)


def drop_unsafe_header_value(value: str | None) -> str:
    """Return a header value if it is safe to send back to the service (ETag, cursor), else ""."""
    text = value or ""
    return text if len(text) <= MAX_ECHOED_CHARS and _ECHOED.fullmatch(text) else ""


def escape_control_characters_in_json(text: str) -> str:
    """Return JSON with its control and format characters escaped: the same values, safe on a
    terminal.
    """
    # JSON already escapes every ASCII control character except DEL.
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        one
        if one in _LAYOUT or escape_control_characters(one) == one
        else _escape_json_character(one)
        for one in text
    )


def quote_refused_value(value: object) -> str:
    """Quote a refused value for an error message: on one line, and shortened."""
    text = make_text_one_line(str(value))
    return f"“{text[:80]}…”" if len(text) > 80 else f"“{text}”"


def _escape_json_character(character: str) -> str:
    # JSON writes a character beyond U+FFFF as two escapes, and
    # its texts may hold half of such a pair.
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _has_surrogates(text: str) -> bool:
    return any(unicodedata.category(one) == "Cs" for one in text)
