"""`/ui/webhooks`: webhooks, their last deliveries, and their actions."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import RedirectResponse, Response

from api.dependencies import Config, Cursor, Db, Read, Write
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from api.routes.webhooks import DeliveryPath, WebhookPath
from core.contract.responses.webhook import NewWebhook
from core.contract.webhook import EVENTS, FORMATS, WebhookEvent, WebhookFormat
from core.database.session import Database
from core.errors import Invalid, NotFound, PerennialError, TooManyRequests, WebhooksNotSetUp
from core.requests.actor import Actor
from core.settings import Settings
from core.webhooks import webhook_deliveries, webhooks

router = APIRouter(include_in_schema=False)

HOOKS, ROWS = 200, 30
Verb = Annotated[str, PathParameter(description="What to do", max_length=40)]


class WebhookFormValues(TypedDict):
    """Values of the form for a new webhook: its inputs, and the ticked event types."""

    url: str
    format: WebhookFormat
    model: str
    events: Sequence[WebhookEvent]


_NEW: WebhookFormValues = {"url": "", "format": "standard", "model": "", "events": EVENTS}
"""Initial values of the form."""


@router.get("/ui/webhooks")
def show_webhooks_page(request: Request, actor: Read, db: Db, cursor: Cursor = None) -> Response:
    """Show all webhooks, and a form for a new one."""
    return _render_webhook_list(request, db, actor, cursor=cursor)


@router.post("/ui/webhooks")
async def handle_create_webhook_form(
    request: Request, actor: Write, db: Db, settings: Config
) -> Response:
    """Create a webhook and show its secret, or show the form again with the error."""
    inputs = await forms.read_values_of_own_page_form(request)
    chosen_events = [event for event in EVENTS if inputs.get(f"event.{event}")]
    url, model = inputs.get("url", ""), inputs.get("model", "")
    chosen: WebhookFormat = next(
        (one for one in FORMATS if one == inputs.get("format")), "standard"
    )

    def create_webhook_from_form() -> Response:
        try:
            requested = webhooks.RequestedWebhook(url, chosen_events, model or None, chosen)
            hook = webhooks.create_webhook(db, settings, actor, requested)
        except (Invalid, NotFound, TooManyRequests, WebhooksNotSetUp) as error:
            filled: WebhookFormValues = {
                "url": url,
                "format": chosen,
                "model": model,
                "events": chosen_events,
            }
            return _render_webhook_list(request, db, actor, filled=filled, wrong=error)
        return _render_webhook_page(request, db, actor, hook["id"], made=hook)

    return await to_thread.run_sync(create_webhook_from_form)


@router.get("/ui/webhooks/{webhook}")
def show_webhook_page(
    request: Request, webhook: WebhookPath, actor: Read, db: Db, cursor: Cursor = None
) -> Response:
    """Show a webhook and its deliveries."""
    return _render_webhook_page(request, db, actor, webhook, cursor=cursor)


@router.post("/ui/webhooks/{webhook}/{verb}")
async def handle_webhook_action_form(
    request: Request, webhook: WebhookPath, verb: Verb, actor: Write, db: Db, settings: Config
) -> Response:
    """Test, rotate, disable, enable or delete a webhook."""
    inputs = await forms.read_values_of_own_page_form(request)

    def run_webhook_action() -> Response:
        # Shown by this response: after a redirect, the secret would no longer be at hand.
        if verb == "rotate":
            return _render_webhook_page(
                request,
                db,
                actor,
                webhook,
                made=webhooks.rotate_secret(db, settings, actor, webhook),
            )
        _apply_webhook_verb(db, settings, actor, webhook, verb, sure=inputs.get("sure") == "yes")
        where = "/ui/webhooks" if verb == "delete" else f"/ui/webhooks/{webhook}"
        return RedirectResponse(f"{get_root_path(request.scope)}{where}", 303)

    return await to_thread.run_sync(run_webhook_action)


@router.post("/ui/webhooks/{webhook}/deliveries/{delivery}/redeliver")
async def handle_resend_delivery_form(
    request: Request, webhook: WebhookPath, delivery: DeliveryPath, actor: Write, db: Db
) -> Response:
    """Send a delivery again."""
    await forms.read_values_of_own_page_form(request)
    await to_thread.run_sync(webhook_deliveries.requeue_delivery, db, actor, webhook, delivery)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/webhooks/{webhook}", 303)


def _apply_webhook_verb(
    db: Database, settings: Settings, actor: Actor, webhook: str, verb: str, *, sure: bool
) -> None:
    if verb == "test":
        webhooks.queue_test_delivery(db, actor, webhook)
    elif verb in ("disable", "enable"):
        webhooks.change_webhook(db, settings, actor, webhook, {"enabled": verb == "enable"})
    elif verb != "delete":
        raise Invalid(
            f"A webhook cannot be told to {verb}: test, rotate, disable, enable and delete are "
            f"possible."
        )
    elif not sure:
        raise Invalid("The webhook is deleted only with the box ticked that says so.")
    else:
        webhooks.remove_webhook(db, actor, webhook)


def _render_webhook_list(
    request: Request,
    db: Database,
    actor: Actor,
    *,
    cursor: str | None = None,
    filled: WebhookFormValues = _NEW,
    wrong: PerennialError | None = None,
) -> Response:
    hook_page = webhooks.list_webhooks(db, actor, limit=HOOKS, cursor=cursor)
    context = {
        "hooks": hook_page["items"],
        "next_cursor": hook_page["next_cursor"],
        "known": EVENTS,
        "filled": filled,
    }
    status = 200 if wrong is None else wrong.status
    return render_page(
        request, "webhooks.html", {**context, "wrong": wrong.detail if wrong else None}, status
    )


def _render_webhook_page(
    request: Request,
    db: Database,
    actor: Actor,
    webhook: str,
    *,
    cursor: str | None = None,
    made: NewWebhook | None = None,
) -> Response:
    """Render the page of a webhook; a new secret is shown only once and must not be cached."""
    hook = webhooks.read_webhook(db, actor, webhook)
    delivery_page = webhook_deliveries.list_deliveries(
        db, actor, webhook, state=None, limit=ROWS, cursor=cursor
    )
    context = {
        "hook": hook,
        "deliveries": delivery_page["items"],
        "next_cursor": delivery_page["next_cursor"],
        "cursor": cursor,
    }
    response = render_page(
        request, "webhook.html", {**context, "secret": made["secret"] if made else None}
    )
    # The page shows a secret once: no cache may keep it.
    if made is not None:
        response.headers["Cache-Control"] = "no-store"
    return response
