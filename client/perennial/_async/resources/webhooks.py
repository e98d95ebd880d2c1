"""Webhooks: notifications of events by signed POST requests.

`perennial.webhooks.verify` verifies and parses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from perennial import types
from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.pages import AsyncPages
from perennial.fields import NOT_GIVEN, NotGiven, drop_fields_not_given
from perennial.guard import build_api_path

State = Literal["pending", "delivered", "failed"]
Format = Literal["standard", "slack", "teams"]


class AsyncWebhooks:
    """Webhooks and their deliveries."""

    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def create(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        model: str | None = None,
        format: Format | None = None,
    ) -> types.NewWebhook:
        """Register a receiver; its `secret` is only in this response.

        Args:
            events: such as `["version.published", "job.failed"]`; None: all.
            model: id or name of the only model to notify about; None: all.
            format: "slack" or "teams" sends readable messages for these services; None: signed
                payloads.
        """
        event_list = None if events is None else [*events]
        body: dict[str, Any] = {"url": url, "events": event_list, "model": model, "format": format}
        given_fields = {key: value for key, value in body.items() if value is not None}
        # The service has no Idempotency-Key for webhooks: a repeated request would create a second
        # one.
        ask = ApiRequest("POST", "/v1/webhooks", json=given_fields, is_replayable=False)
        return await self._http.send_and_read(types.NewWebhook, ask)

    def list(self, *, limit: int | None = None) -> AsyncPages[types.Webhook]:
        """List your webhooks, each with its last delivery."""
        return self._http.pages(types.Webhook, "/v1/webhooks", {"limit": limit})

    async def retrieve(self, webhook: str) -> types.Webhook:
        """Return one webhook."""
        return await self._http.get(types.Webhook, build_api_path("webhooks", webhook))

    async def update(
        self,
        webhook: str,
        *,
        url: str | NotGiven = NOT_GIVEN,
        format: Format | NotGiven = NOT_GIVEN,
        events: Sequence[str] | NotGiven = NOT_GIVEN,
        model: str | NotGiven | None = NOT_GIVEN,
        enabled: bool | NotGiven = NOT_GIVEN,
    ) -> types.Webhook:
        """Change the given fields; `model` None: notify about all models."""
        event_list = events if isinstance(events, NotGiven) else [*events]
        changes = drop_fields_not_given(
            {"url": url, "format": format, "events": event_list, "model": model, "enabled": enabled}
        )
        return await self._http.send_and_read(
            types.Webhook, ApiRequest("PATCH", build_api_path("webhooks", webhook), json=changes)
        )

    async def delete(self, webhook: str) -> None:
        """Remove a webhook with its deliveries."""
        await self._http.send(ApiRequest("DELETE", build_api_path("webhooks", webhook)))

    async def test(self, webhook: str) -> types.DeliveryDetail:
        """Send a `webhook.test` event; `retrieve_delivery` returns its result."""
        return await self._http.send_and_read(
            types.DeliveryDetail, ApiRequest("POST", build_api_path("webhooks", webhook, "test"))
        )

    async def rotate(self, webhook: str) -> types.NewWebhook:
        """Create a new `secret`, only in this response; for a day the old one signs
        deliveries too.
        """
        # Not replayable: repeated, it would replace the new secret, and the old one would no longer
        # sign.
        ask = ApiRequest("POST", build_api_path("webhooks", webhook, "rotate"), is_replayable=False)
        return await self._http.send_and_read(types.NewWebhook, ask)

    def deliveries(
        self, webhook: str, *, state: State | None = None, limit: int | None = None
    ) -> AsyncPages[types.Delivery]:
        """List sent and pending deliveries, newest first."""
        where = build_api_path("webhooks", webhook, "deliveries")
        return self._http.pages(types.Delivery, where, {"state": state, "limit": limit})

    async def retrieve_delivery(self, webhook: str, delivery: str) -> types.DeliveryDetail:
        """Return one delivery with its payload."""
        where = build_api_path("webhooks", webhook, "deliveries", delivery)
        return await self._http.get(types.DeliveryDetail, where)

    async def redeliver(self, webhook: str, delivery: str) -> types.DeliveryDetail:
        """Send a delivery again at once, under the same id."""
        where = build_api_path("webhooks", webhook, "deliveries", delivery, "redeliver")
        return await self._http.send_and_read(types.DeliveryDetail, ApiRequest("POST", where))
