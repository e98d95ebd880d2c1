"""`/ui/webhooks`: who is told what happens, how the last delivery went, and its buttons."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import RedirectResponse, Response

from api.dependencies import Config, Cursor, Db, Read, Write
from api.pages import forms
from api.pages.render import page, root_of
from api.routes.webhooks import DeliveryPath, WebhookPath
from core.db.session import Database
from core.errors import Invalid, NotFound, PerennialError, TooManyRequests, WebhooksUnavailable
from core.protocol.answers.webhook import NewWebhook
from core.protocol.webhook import EVENTS, FORMATS, WebhookEvent, WebhookFormat
from core.requests import webhook_deliveries, webhooks
from core.requests.actor import Actor
from core.settings import Settings

router = APIRouter(include_in_schema=False)

HOOKS, ROWS = 200, 30
Verb = Annotated[str, PathParameter(description="What to do", max_length=40)]


class Filled(TypedDict):
    """What the form of a new webhook shows: its inputs, and the events that are ticked."""

    url: str
    format: WebhookFormat
    model: str
    events: Sequence[WebhookEvent]


_NEW: Filled = {"url": "", "format": "standard", "model": "", "events": EVENTS}
"""At first."""


@router.get("/ui/webhooks")
def show(request: Request, actor: Read, db: Db, cursor: Cursor = None) -> Response:
    """All webhooks, and a form for another."""
    return _list(request, db, actor, cursor=cursor)


@router.post("/ui/webhooks")
async def create(request: Request, actor: Write, db: Db, settings: Config) -> Response:
    """Make one, and show its secret; what is wrong with it is said beside the form."""
    given = await forms.form(request)
    wanted = [event for event in EVENTS if given.get(f"event.{event}")]
    url, model = given.get("url", ""), given.get("model", "")
    chosen: WebhookFormat = next((one for one in FORMATS if one == given.get("format")), "standard")

    def made() -> Response:
        try:
            hook = webhooks.create(
                db, settings, actor, url=url, events=wanted, model=model or None, format=chosen
            )
        except (Invalid, NotFound, TooManyRequests, WebhooksUnavailable) as error:
            filled: Filled = {"url": url, "format": chosen, "model": model, "events": wanted}
            return _list(request, db, actor, filled=filled, wrong=error)
        return _one(request, db, actor, hook["id"], made=hook)

    return await to_thread.run_sync(made)


@router.get("/ui/webhooks/{webhook}")
def show_one(request: Request, webhook: WebhookPath, actor: Read, db: Db, cursor: Cursor = None) -> Response:
    """One webhook and its deliveries."""
    return _one(request, db, actor, webhook, cursor=cursor)


@router.post("/ui/webhooks/{webhook}/{verb}")
async def act(
    request: Request, webhook: WebhookPath, verb: Verb, actor: Write, db: Db, settings: Config
) -> Response:
    """Test, rotate, disable, enable or delete it."""
    given = await forms.form(request)

    def acted() -> Response:
        if verb == "rotate":
            return _one(request, db, actor, webhook, made=webhooks.rotate(db, settings, actor, webhook))
        _do(db, settings, actor, webhook, verb, sure=given.get("sure") == "yes")
        where = "/ui/webhooks" if verb == "delete" else f"/ui/webhooks/{webhook}"
        return RedirectResponse(f"{root_of(request.scope)}{where}", 303)

    return await to_thread.run_sync(acted)


@router.post("/ui/webhooks/{webhook}/deliveries/{delivery}/redeliver")
async def redeliver(
    request: Request, webhook: WebhookPath, delivery: DeliveryPath, actor: Write, db: Db
) -> Response:
    """Send a delivery once more."""
    await forms.form(request)
    await to_thread.run_sync(webhook_deliveries.redeliver, db, actor, webhook, delivery)
    return RedirectResponse(f"{root_of(request.scope)}/ui/webhooks/{webhook}", 303)


def _do(db: Database, settings: Settings, actor: Actor, webhook: str, verb: str, *, sure: bool) -> None:
    if verb == "test":
        webhooks.test(db, actor, webhook)
    elif verb in ("disable", "enable"):
        webhooks.change(db, settings, actor, webhook, {"enabled": verb == "enable"})
    elif verb != "delete":
        raise Invalid(
            f"A webhook cannot be told to {verb}: test, rotate, disable, enable and delete are possible."
        )
    elif not sure:
        raise Invalid("The webhook is deleted only with the box ticked that says so.")
    else:
        webhooks.remove(db, actor, webhook)


def _list(
    request: Request,
    db: Database,
    actor: Actor,
    *,
    cursor: str | None = None,
    filled: Filled = _NEW,
    wrong: PerennialError | None = None,
) -> Response:
    found = webhooks.list_webhooks(db, actor, limit=HOOKS, cursor=cursor)
    told = {"hooks": found["items"], "next_cursor": found["next_cursor"], "known": EVENTS, "filled": filled}
    status = 200 if wrong is None else wrong.status
    return page(request, "webhooks.html", {**told, "wrong": wrong.detail if wrong else None}, status)


def _one(
    request: Request,
    db: Database,
    actor: Actor,
    webhook: str,
    *,
    cursor: str | None = None,
    made: NewWebhook | None = None,
) -> Response:
    """The page of a webhook; with the secret where it was just made, which no cache may keep."""
    hook = webhooks.read(db, actor, webhook)
    found = webhook_deliveries.list_deliveries(db, actor, webhook, state=None, limit=ROWS, cursor=cursor)
    told = {"hook": hook, "deliveries": found["items"], "next_cursor": found["next_cursor"], "cursor": cursor}
    answer = page(request, "webhook.html", {**told, "secret": made["secret"] if made else None})
    if made is not None:
        answer.headers["Cache-Control"] = "no-store"
    return answer
