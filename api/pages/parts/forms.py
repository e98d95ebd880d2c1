"""Forms of the pages: small bodies of names and values, accepted only from this service's own
pages.
"""

from urllib.parse import parse_qsl

from starlette.requests import Request

from api.authentication import session
from api.authentication.guard import read_declared_length, read_small_body
from api.uploads.batch_request import parse_recipe_override
from core.contract.patch import RecipePatch
from core.errors import Invalid, UnsupportedContentType
from core.ingest.readers.registry import FORMATS, UPLOAD_TYPES
from perennial.characters import validate_and_normalise_reason

MAX_BYTES = 16 << 10
MAX_FIELDS = 20
# A browser compares the last part of an ending alone: `.gz`, not `.tar.gz`.
ARCHIVE_TYPES = ",".join(
    (*UPLOAD_TYPES, *(f".{each.rpartition('.')[2]}" for each in FORMATS.endings))
)
"""Files that a browser offers where a batch is chosen."""


async def read_values_of_own_page_form(
    request: Request, fields: int = MAX_FIELDS
) -> dict[str, str]:
    """Read the submitted values of a form by name, without surrounding spaces.

    Args:
        fields: maximum number of fields.

    Raises:
        InsufficientKeyScope: a page of another site sent it.
        BodyTooLarge, BodyTruncated, BodyTimeout: see `api.authentication.guard.read_small_body`.
        UnsupportedContentType: the body is not a form.
        Invalid: it is not UTF-8, has too many fields, or contains a NUL character.
    """
    session.require_own_request_origin(request.scope)
    body = await read_small_body(
        request.receive, MAX_BYTES, read_declared_length(request.headers.get("content-length"))
    )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != "application/x-www-form-urlencoded":
        raise UnsupportedContentType(
            "A form of a page is sent as application/x-www-form-urlencoded."
        )
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            max_num_fields=fields,
            # By default, bytes that are no UTF-8 would be replaced.
            errors="strict",
        )
    except ValueError:
        raise Invalid(
            "This form cannot be read: its text is not UTF-8, or it has too many fields."
        ) from None
    # PostgreSQL stores no NUL in a text.
    if any("\0" in value for _, value in pairs):
        raise Invalid("This form holds a NUL character.")
    return {name: value.strip() for name, value in pairs}


def read_form_reason(inputs: dict[str, str]) -> str | None:
    """Return the reason that a person entered in a form, or None if it is empty.

    Raises:
        Invalid: it is too long, or has an invisible character.
    """
    try:
        return validate_and_normalise_reason(inputs.get("reason", "")) or None
    except ValueError as error:
        raise Invalid(f"The reason {error}.") from None


def parse_relearning_recipe_input(inputs: dict[str, str]) -> RecipePatch | None:
    """Return the recipe chosen for learning again; None keeps the task's recipe.

    Raises:
        InvalidRecipe: it cannot be read.
    """
    text = inputs.get("recipe", "")
    return parse_recipe_override(text.encode()) if text else None


def parse_form_whole_number(inputs: dict[str, str], name: str) -> int:
    """Parse the whole number in a form input.

    Raises:
        Invalid: it is not a number of at most nine digits.
    """
    text = inputs.get(name, "")
    # int() would accept signs, spaces, underscores and digits of other scripts.
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"{name} is not a number: {text[:40]!r}.")
    return int(text)
