"""For who receives webhooks: whether a request came from the service, whole and just now, and what it says.

    from perennial.webhooks import verify

    event = verify(body, headers, secret)  # body: the bytes as they came
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
"""How old or how far in the future a request may be: an older one may be a copy of somebody else's."""


class NotVerified(PerennialError):
    """A request that the service has not sent, or not now: answer it with 400, and believe nothing that it says."""


def verify(
    body: bytes | str, headers: Mapping[str, str], secret: str, *, tolerance_s: float = TOLERANCE_S
) -> dict[str, Any]:
    """What a request says, `{"type", "timestamp", "data"}`, once its signature is right.

    The same event may come twice: `headers["webhook-id"]` is then the same, so remember the last ones.

    Args:
        body: as it came, not parsed and written again.
        headers: webhook-id, webhook-timestamp and webhook-signature are read, in any case of letters.
        secret: `whsec_…`, as it was shown when the webhook was made.

    Raises:
        NotVerified: another secret has signed it, it was changed, or its time is too far from this machine's.
    """
    raw = body.encode() if isinstance(body, str) else body
    given = {name.lower(): value for name, value in headers.items()}
    try:
        id_, sent, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        at = int(sent)
    except (KeyError, ValueError):
        raise NotVerified(
            "The headers webhook-id, webhook-timestamp and webhook-signature are not there."
        ) from None
    if abs(time.time() - at) > tolerance_s:
        raise NotVerified(f"The request was signed {time.time() - at:.0f} s ago by this machine's clock.")
    signed = hmac.digest(_key(secret), f"{id_}.{sent}.".encode() + raw, "sha256")
    wanted = f"v1,{base64.b64encode(signed).decode()}"
    if not any([hmac.compare_digest(wanted.encode(), one.encode()) for one in signatures.split(" ")]):
        raise NotVerified("No signature is of this secret, or the body is not as it was sent.")
    event: dict[str, Any] = json.loads(raw)
    return event


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise NotVerified("The secret is none: it begins with whsec_ and goes on in base64.") from None
