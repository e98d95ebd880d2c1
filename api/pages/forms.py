"""Forms of the pages: small bodies of names and values, from this service's own pages alone."""

from urllib.parse import parse_qsl

from starlette.requests import Request

from api import session
from api.guard import declared_length, read_body
from api.uploads.order import recipe_in
from core import characters
from core.errors import Invalid, UnsupportedType
from core.protocol.patch import RecipePatch

MAX_BYTES = 16 << 10
MAX_FIELDS = 20


async def form(request: Request, fields: int = MAX_FIELDS) -> dict[str, str]:
    """What somebody filled in, by name, without the spaces around it.

    Args:
        fields: that it may have.

    Raises:
        NotAllowed: another site's page sends it.
        BodyTooLarge, BodyTruncated, BodyTimeout: see `api.guard.read_body`.
        Invalid: it is not a form, or too long.
    """
    session.require_own_origin(request.scope)
    body = await read_body(request.receive, MAX_BYTES, declared_length(request.headers.get("content-length")))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/x-www-form-urlencoded":
        raise UnsupportedType("A form of a page is sent as application/x-www-form-urlencoded.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=fields, errors="strict")
    except ValueError:
        raise Invalid("This form cannot be read: its text is not UTF-8, or it has too many fields.") from None
    if any("\0" in value for _, value in pairs):
        raise Invalid("This form holds a NUL character.")
    return {name: value.strip() for name, value in pairs}


def reason_of(given: dict[str, str]) -> str | None:
    """The reason in a form; None: there is none.

    Raises:
        Invalid: it is too long, or has a character that nobody can see.
    """
    try:
        return characters.prose(given.get("reason", "")) or None
    except ValueError as error:
        raise Invalid(f"The reason {error}.") from None


def recipe_of(given: dict[str, str]) -> RecipePatch | None:
    """The recipe that was chosen to learn again with; None: the one that it had. Raises: InvalidRecipe."""
    text = given.get("recipe", "")
    return recipe_in(text.encode()) if text else None


def number_of(given: dict[str, str], name: str) -> int:
    """A number in a form. Raises: Invalid."""
    text = given.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"{name} is not a number: {text[:40]!r}.")
    return int(text)
