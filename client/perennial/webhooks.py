"""Verification of received webhooks: origin, integrity and age.

    from perennial.webhooks import verify

    event = verify(body, headers, secret)  # body: the bytes as received
    if event["type"] == "version.published": ...

Any library of Standard Webhooks (github.com/standard-webhooks) does the same.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from perennial.errors import PerennialError

TOLERANCE_S = 300.0
"""Maximum age of a request in seconds, past or future; an older one may be a replayed copy."""


class NotVerified(PerennialError):
    """A webhook request is not authentic or too old: answer 400 and ignore its content."""


def verify(
    body: bytes | str, headers: Mapping[str, str], secret: str, *, tolerance_s: float = TOLERANCE_S
) -> dict[str, Any]:
    """Verify a webhook request's signature and return its event, `{"type", "timestamp", "data"}`.

    An event may be delivered twice, with the same `headers["webhook-id"]`: remember the last ones.

    Args:
        body: body exactly as received, not parsed and serialized again.
        headers: must contain webhook-id, webhook-timestamp and webhook-signature, in any case.
        secret: `whsec_…`, as shown when the webhook was created.
        tolerance_s: maximum difference from this machine's clock in seconds.

    Raises:
        NotVerified: it was signed with another secret, was modified, or its time differs too much.
    """
    raw = body.encode() if isinstance(body, str) else body
    headers_by_name = {name.lower(): value for name, value in headers.items()}
    try:
        id_, timestamp, signatures = (
            headers_by_name[f"webhook-{name}"] for name in ("id", "timestamp", "signature")
        )
        at = int(timestamp)
    except (KeyError, ValueError):
        raise NotVerified(
            "The headers webhook-id, webhook-timestamp and webhook-signature are not there."
        ) from None
    # Both directions: a time in the future would stay valid for longer.
    if abs(time.time() - at) > tolerance_s:
        raise NotVerified(
            f"The request was signed {time.time() - at:.0f} s ago by this machine's clock."
        )
    # The digest is of the raw bytes: parsed and written again, the JSON would differ.
    signed = hmac.digest(_decode_secret(secret), f"{id_}.{timestamp}.".encode() + raw, "sha256")
    expected_signature = f"v1,{base64.b64encode(signed).decode()}"
    # Compare every signature, in a list rather than a generator, so that the time reveals no match.
    if not any(
        [
            hmac.compare_digest(expected_signature.encode(), one.encode())
            # For a day after a rotation, both secrets sign.
            for one in signatures.split(" ")
        ]
    ):
        raise NotVerified("No signature is of this secret, or the body is not as it was sent.")
    event: dict[str, Any] = json.loads(raw)
    return event


def _decode_secret(secret: str) -> bytes:
    try:
        # By default, foreign characters are skipped, and a mistyped secret would be another key.
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise NotVerified(
            "The secret is none: it begins with whsec_ and goes on in base64."
        ) from None
