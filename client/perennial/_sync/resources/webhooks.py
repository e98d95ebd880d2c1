"""Webhooks: be told by a signed POST what happens to your models. `perennial.webhooks.verify` reads what comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from perennial import types
from perennial._sync.http import Ask, Http
from perennial._sync.pages import Pages
from perennial.fields import NOT_GIVEN, NotGiven, said
from perennial.guard import path

State = Literal["pending", "delivered", "failed"]
Format = Literal["standard", "slack", "teams"]


class Webhooks:
    """Addresses that are told what happens, and what was sent to them."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        model: str | None = None,
        format: Format | None = None,
    ) -> types.NewWebhook:
        """Name a receiver; its `secret` is shown this once.

        Args:
            events: such as `["version.published", "job.failed"]`; None: all.
            model: id or name of the only model that it is told of.
            format: "slack" or "teams" sends messages that people read there; None: signed payloads.
        """
        named = None if events is None else [*events]
        body: dict[str, Any] = {"url": url, "events": named, "model": model, "format": format}
        given = {key: value for key, value in body.items() if value is not None}
        ask = Ask("POST", "/v1/webhooks", json=given, is_replayable=False)
        return self._http.call(types.NewWebhook, ask)

    def list(self, *, limit: int | None = None) -> Pages[types.Webhook]:
        """Your webhooks, each with its last delivery."""
        return self._http.pages(types.Webhook, "/v1/webhooks", {"limit": limit})

    def retrieve(self, webhook: str) -> types.Webhook:
        """One webhook."""
        return self._http.get(types.Webhook, path("webhooks", webhook))

    def update(
        self,
        webhook: str,
        *,
        url: str | NotGiven = NOT_GIVEN,
        format: Format | NotGiven = NOT_GIVEN,
        events: Sequence[str] | NotGiven = NOT_GIVEN,
        model: str | NotGiven | None = NOT_GIVEN,
        enabled: bool | NotGiven = NOT_GIVEN,
    ) -> types.Webhook:
        """Change what is given; `model` None: it is told of all models."""
        named = events if isinstance(events, NotGiven) else [*events]
        changes = said({"url": url, "format": format, "events": named, "model": model, "enabled": enabled})
        return self._http.call(types.Webhook, Ask("PATCH", path("webhooks", webhook), json=changes))

    def delete(self, webhook: str) -> None:
        """Remove it with its deliveries."""
        self._http.send(Ask("DELETE", path("webhooks", webhook)))

    def test(self, webhook: str) -> types.DeliveryDetail:
        """Send it an event of the type `webhook.test`; `retrieve_delivery` says how it went."""
        return self._http.call(types.DeliveryDetail, Ask("POST", path("webhooks", webhook, "test")))

    def rotate(self, webhook: str) -> types.NewWebhook:
        """Give it a new `secret`, shown this once; for a day deliveries are signed with the old one too."""
        ask = Ask("POST", path("webhooks", webhook, "rotate"), is_replayable=False)
        return self._http.call(types.NewWebhook, ask)

    def deliveries(
        self, webhook: str, *, state: State | None = None, limit: int | None = None
    ) -> Pages[types.Delivery]:
        """What was sent and what waits, newest first."""
        where = path("webhooks", webhook, "deliveries")
        return self._http.pages(types.Delivery, where, {"state": state, "limit": limit})

    def retrieve_delivery(self, webhook: str, delivery: str) -> types.DeliveryDetail:
        """One delivery with its payload."""
        where = path("webhooks", webhook, "deliveries", delivery)
        return self._http.get(types.DeliveryDetail, where)

    def redeliver(self, webhook: str, delivery: str) -> types.DeliveryDetail:
        """Send it once more at once, under the same id."""
        where = path("webhooks", webhook, "deliveries", delivery, "redeliver")
        return self._http.call(types.DeliveryDetail, Ask("POST", where))
