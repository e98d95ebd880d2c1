"""`/ui/admin/…`: keys, the audit trail and usage, for administrators."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, TypeVar, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from api.authentication.access import Authenticator
from api.dependencies import Admin, Cursor, Db
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from core.contract.responses.key import NewKey
from core.contract.usage import ModelBytes
from core.database.session import Database
from core.errors import Invalid, PerennialError
from core.keys import keys, predict_keys
from core.requests import audit
from core.requests.actor import Actor
from core.requests.audit import AuditQuery
from core.requests.timestamps import format_rfc3339, parse_rfc3339
from core.usage import usage_lists
from perennial.characters import MAX_NAME_CHARS, validate_and_normalise_name

router = APIRouter(include_in_schema=False)

N = TypeVar("N", int, float)
ROWS = 50
SCOPES = {
    "read": "looks, downloads and predicts",
    "write": "the same, and creates, submits, promotes",
    "admin": "everything, of all owners, and these pages",
    "scrape": "the figures at /metrics alone",
    "predict": "asks one alias of one model, also from a web page",
}
DAYS = {"": "never", "30": "in 30 days", "90": "in 90 days", "365": "in a year"}
"""Choices for the expiry of a new key: number of days → label."""
KINDS = ("versions", "datasets", "archives", "exports", "bases", "uploads")
"""Kinds of stored bytes, in the order of the page's columns."""
KeyPath = Annotated[str, Path(description="Id of the key", max_length=40)]


@dataclass(frozen=True)
class _NewKeyFormState:
    """Page state of the form that creates an API key: its inputs, error, or the new key.

    Attributes:
        inputs: values that were sent, to be shown again.
        error: why no key was created from them.
        new: the key that was created from them.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    error: PerennialError | None = None
    new: NewKey | None = None


@dataclass(frozen=True)
class AuditPageFilters:
    """Filters of the audit trail as entered on its page; an empty text filters nothing."""

    model: str
    action: str
    since: str


async def _gather_audit_page_query_parameters(
    model: Annotated[str, Query(max_length=63, description="Id or name")] = "",
    action: Annotated[str, Query(max_length=40, description="Such as alias.set")] = "",
    since: Annotated[
        str, Query(max_length=40, description="The first day, such as 2026-11-24")
    ] = "",
) -> AuditPageFilters:
    return AuditPageFilters(model.strip(), action.strip(), since.strip())


@router.get("/ui/admin/keys")
def show_keys_page(request: Request, actor: Admin, db: Db, cursor: Cursor = None) -> Response:
    """Show all keys, newest first, and a form that creates one."""
    return _render_keys_page(request, db, actor, _NewKeyFormState(), cursor)


@router.post("/ui/admin/keys")
async def handle_create_key_form(request: Request, actor: Admin, db: Db) -> Response:
    """Create a key and show its secret, which appears only on this page."""
    inputs = await forms.read_values_of_own_page_form(request)

    def create_key_from_form() -> NewKey:
        requested = keys.RequestedKey(
            _parse_key_name(inputs.get("name", "")),
            inputs.get("scope", ""),
            inputs.get("owner") or None,
            _compute_expiry_time_from_days(inputs.get("days", "")),
            _parse_key_restrictions(inputs),
        )
        return keys.create_key(db, actor, requested)

    try:
        form = _NewKeyFormState(new=await to_thread.run_sync(create_key_from_form))
    except PerennialError as error:
        form = _NewKeyFormState(inputs, error)
    return await to_thread.run_sync(_render_keys_page, request, db, actor, form)


@router.post("/ui/admin/keys/{key}/revoke")
async def handle_revoke_key_form(request: Request, key: KeyPath, actor: Admin, db: Db) -> Response:
    """Revoke a key."""
    # Its fields do not matter: this checks that a page of this service sent it.
    await forms.read_values_of_own_page_form(request)
    await to_thread.run_sync(keys.revoke_key, db, actor, key)
    # This process would otherwise accept the key from its cache for another second.
    access: Authenticator = request.app.state.access
    access.forget_cached_key(key)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/admin/keys", 303)


@router.get("/ui/admin/audit")
def show_audit_page(
    request: Request,
    actor: Admin,
    db: Db,
    filters: Annotated[AuditPageFilters, Depends(_gather_audit_page_query_parameters)],
    cursor: Cursor = None,
) -> Response:
    """Show the audit trail, newest first."""
    context: dict[str, object] = {
        "asked": vars(filters),
        "cursor": cursor,
        "rows": [],
        "next_cursor": None,
        "names": {},
    }
    try:
        selection = AuditQuery(
            filters.model or None,
            filters.action or None,
            _parse_audit_filter_time(filters.since),
            newest_first=True,
        )
        entries = audit.list_audit(db, actor, limit=ROWS, cursor=cursor, wanted=selection)
    except PerennialError as error:
        return render_page(request, "audit.html", {**context, "wrong": error.detail}, error.status)
    names = audit.find_names_of_audited_ids(db, actor, entries["items"])
    rows = [(one, _format_audited_change_data(dict(one["data"]))) for one in entries["items"]]
    context |= {"rows": rows, "next_cursor": entries["next_cursor"], "names": names, "wrong": None}
    return render_page(request, "audit.html", context)


@router.get("/ui/admin/usage")
def show_usage_page(
    request: Request,
    actor: Admin,
    db: Db,
    by: Literal["owner", "model"] = "owner",
    cursor: Cursor = None,
) -> Response:
    """Show counts and bytes per owner or model."""
    read = usage_lists.list_usage_by_model if by == "model" else usage_lists.list_usage_by_owner
    usage_page = read(db, actor, limit=ROWS, cursor=cursor)
    rows = [
        (one, one["bytes"], _sum_bytes_of_all_kinds(one["bytes"])) for one in usage_page["items"]
    ]
    largest = max((total for _, _, total in rows), default=0)
    context = {"by": by, "rows": rows, "most": largest, "kinds": KINDS, "cursor": cursor}
    return render_page(request, "usage.html", {**context, "next_cursor": usage_page["next_cursor"]})


def _render_keys_page(
    request: Request, db: Database, actor: Actor, form: _NewKeyFormState, cursor: str | None = None
) -> Response:
    key_page = keys.list_keys(db, actor, limit=ROWS, cursor=cursor, newest_first=True)
    now = format_rfc3339(datetime.now(UTC).timestamp())
    context = {
        "keys": key_page["items"],
        "next_cursor": key_page["next_cursor"],
        "cursor": cursor,
        "own": actor.key_id,
    }
    form_context = {
        "given": form.inputs,
        "wrong": form.error.detail if form.error else None,
        "new": form.new,
        "scopes": SCOPES,
        "days": DAYS,
        "now": now,
    }
    status = form.error.status if form.error else 200
    return render_page(request, "keys.html", {**context, **form_context}, status)


def _parse_key_name(text: str) -> str:
    try:
        if not 0 < len(text) <= MAX_NAME_CHARS:
            raise ValueError(f"has {len(text)} characters; 1 to {MAX_NAME_CHARS} are allowed")
        return validate_and_normalise_name(text)
    except ValueError as error:
        raise Invalid(f"The name of the key {error}.") from None


def _parse_key_restrictions(inputs: dict[str, str]) -> predict_keys.RequestedKeyModelAndLimits:
    """Return the model, alias and limits of a new predict-scope key from its form."""
    return predict_keys.RequestedKeyModelAndLimits(
        inputs.get("model", "").strip() or None,
        inputs.get("alias", "").strip() or None,
        _parse_form_number(inputs, "requests_per_s", float),
        _parse_form_number(inputs, "images_per_day", int),
    )


def _parse_form_number(inputs: dict[str, str], name: str, read: Callable[[str], N]) -> N | None:
    text = inputs.get(name, "").strip()
    if not text:
        return None
    try:
        value = read(text[:20])
    except ValueError:
        raise Invalid(f"{name.replace('_', ' ')}: {text[:20]!r} is no number.") from None
    # float() accepts nan and infinity.
    if value != value or value in (math.inf, -math.inf):
        raise Invalid(f"{name.replace('_', ' ')}: {text[:20]!r} is no number.")
    return value


def _compute_expiry_time_from_days(days: str) -> str | None:
    if days not in DAYS:
        raise Invalid(f"A key expires {', '.join(DAYS.values())}; not after {days[:20]!r} days.")
    return (
        format_rfc3339((datetime.now(UTC) + timedelta(days=int(days))).timestamp())
        if days
        else None
    )


def _parse_audit_filter_time(text: str) -> float | None:
    """Parse a day or a time from a form into seconds since 1970; None for an empty text."""
    return None if not text else parse_rfc3339(f"{text}T00:00:00Z" if len(text) == 10 else text)


def _sum_bytes_of_all_kinds(model_bytes: ModelBytes) -> int:
    return sum(cast(Mapping[str, int], model_bytes).values())


def _format_audited_change_data(data: dict[str, object]) -> list[tuple[str, str]]:
    """Return an audit entry's recorded data as (field, value) texts."""
    fields = (
        (name, value)
        for name, value in data.items()
        if name != "model" and value not in (None, [], {}, "")
    )
    return [
        (
            name.replace("_", " "),
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
        )
        for name, value in fields
    ]
