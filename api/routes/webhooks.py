"""Routes for webhooks and their deliveries."""

from typing import Annotated, Literal, cast

from fastapi import Path, Query, Response

from api.dependencies import Config, Db, Page, Read, Write
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.routes.service.keys import NO_STORE
from api.schemas.owners import WebhookIn, WebhookPatch
from core.contract.responses.webhook import (
    DeliveryDetail,
    DeliveryPage,
    NewWebhook,
    WebhookChange,
    WebhookOut,
    WebhookPage,
)
from core.webhooks import webhook_deliveries, webhooks

router = make_tagged_api_router("webhooks")

WebhookPath = Annotated[str, Path(description="Id of the webhook", max_length=40)]
DeliveryPath = Annotated[str, Path(description="Id of the delivery", max_length=40)]


@router.post(
    "/v1/webhooks",
    summary="Create",
    status_code=201,
    response_model=NewWebhook,
    responses=build_openapi_problem_responses(404, 429),
)
def create_webhook(body: WebhookIn, actor: Write, db: Db, settings: Config) -> Response:
    """Register a URL to be notified of events; the signing secret is only in this response."""
    requested = webhooks.RequestedWebhook(body.url, body.events, body.model, body.format)
    hook = webhooks.create_webhook(db, settings, actor, requested)
    return build_json_response(hook, 201, {"Location": f"/v1/webhooks/{hook['id']}", **NO_STORE})


@router.get("/v1/webhooks", response_model=WebhookPage)
def list_webhooks(actor: Read, db: Db, page: Page) -> Response:
    """List your webhooks, each with its last delivery."""
    return build_json_response(
        webhooks.list_webhooks(db, actor, limit=page.limit, cursor=page.cursor)
    )


@router.get("/v1/webhooks/{webhook}", summary="Read", response_model=WebhookOut)
def read_webhook(webhook: WebhookPath, actor: Read, db: Db) -> Response:
    """Return one webhook."""
    return build_json_response(webhooks.read_webhook(db, actor, webhook))


@router.patch("/v1/webhooks/{webhook}", summary="Change", response_model=WebhookOut)
def change_webhook(
    webhook: WebhookPath, body: WebhookPatch, actor: Write, db: Db, settings: Config
) -> Response:
    """Change address, format, events or model of a webhook; disable or enable it."""
    patch = cast(WebhookChange, body.model_dump(exclude_unset=True))
    return build_json_response(webhooks.change_webhook(db, settings, actor, webhook, patch))


@router.delete("/v1/webhooks/{webhook}", summary="Delete", status_code=204)
def delete_webhook(webhook: WebhookPath, actor: Write, db: Db) -> Response:
    """Remove a webhook with its deliveries."""
    webhooks.remove_webhook(db, actor, webhook)
    return Response(status_code=204)


@router.post(
    "/v1/webhooks/{webhook}/test",
    summary="Test",
    status_code=202,
    response_model=DeliveryDetail,
    responses=build_openapi_problem_responses(409, 429),
)
def send_test_event(webhook: WebhookPath, actor: Write, db: Db) -> Response:
    """Send a webhook.test event; GET the delivery to see its result."""
    return _build_delivery_accepted_response(webhooks.queue_test_delivery(db, actor, webhook))


@router.post("/v1/webhooks/{webhook}/rotate", summary="Rotate", response_model=NewWebhook)
def rotate_secret(webhook: WebhookPath, actor: Write, db: Db, settings: Config) -> Response:
    """Create a new secret, only in this response; for a day deliveries are signed with the old one
    too.
    """
    return build_json_response(webhooks.rotate_secret(db, settings, actor, webhook), 200, NO_STORE)


@router.get("/v1/webhooks/{webhook}/deliveries", response_model=DeliveryPage)
def list_deliveries(
    webhook: WebhookPath,
    actor: Read,
    db: Db,
    page: Page,
    state: Annotated[
        Literal["pending", "delivered", "failed"] | None, Query(description="Only those in it")
    ] = None,
) -> Response:
    """List sent and pending deliveries, newest first."""
    delivery_page = webhook_deliveries.list_deliveries(
        db, actor, webhook, state=state, limit=page.limit, cursor=page.cursor
    )
    return build_json_response(delivery_page)


@router.get("/v1/webhooks/{webhook}/deliveries/{delivery}", response_model=DeliveryDetail)
def read_delivery(webhook: WebhookPath, delivery: DeliveryPath, actor: Read, db: Db) -> Response:
    """Return one delivery with its payload."""
    return build_json_response(webhook_deliveries.read_delivery(db, actor, webhook, delivery))


@router.post(
    "/v1/webhooks/{webhook}/deliveries/{delivery}/redeliver",
    summary="Redeliver",
    status_code=202,
    response_model=DeliveryDetail,
    responses=build_openapi_problem_responses(409, 429),
)
def resend_delivery(webhook: WebhookPath, delivery: DeliveryPath, actor: Write, db: Db) -> Response:
    """Send a delivery again at once, under the same id."""
    return _build_delivery_accepted_response(
        webhook_deliveries.requeue_delivery(db, actor, webhook, delivery)
    )


def _build_delivery_accepted_response(delivery: DeliveryDetail) -> Response:
    location = f"/v1/webhooks/{delivery['webhook']}/deliveries/{delivery['id']}"
    return build_json_response(delivery, 202, {"Location": location, "Retry-After": "1"})
