"""Stage 3 of an upload: its idempotency key, held during the upload; its response is then repeated.

Without a key nothing is held, and there is no earlier response.
"""

import asyncio
import contextlib
from dataclasses import replace

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from api.json_responses import build_json_response
from api.uploads.body import ReceivedUpload
from api.uploads.outage_tolerance import suppress_database_outage
from api.uploads.request_checks import UploadRequestHead, UploadRouteRules
from core.database.session import Database
from core.requests import idempotency
from core.requests.actor import Actor


class UploadIdempotency:
    """Holds an upload's idempotency key while the upload is in progress.

    Args:
        key: the client's key, None without one.

    Attributes:
        earlier: the earlier response under this key, or None.
        is_done: set when this upload's own response is stored.
    """

    def __init__(
        self, db: Database, actor: Actor, terms: UploadRouteRules, request: Request, key: str | None
    ) -> None:
        self._db, self._actor, self._terms = db, actor, terms
        self._request: idempotency.IdempotentRequestIdentity | None = None
        if key is not None:
            headers = (request.headers.get(name) for name in terms.headers)
            # The body is not known yet: `build_request_with_body_fingerprint` adds it.
            fingerprint = idempotency.digest_request_for_idempotency(
                *request.path_params.values(), request.url.query, *headers
            )
            self._request = idempotency.IdempotentRequestIdentity(terms.route, key, "", fingerprint)
        self._renewing: asyncio.Task[None] | None = None
        self.earlier: idempotency.ReplayedResponse | None = None
        self.is_done = False

    async def __aenter__(self) -> "UploadIdempotency":
        request = self._request
        if request is not None:
            self.earlier = await to_thread.run_sync(
                idempotency.begin_idempotent_request, self._db, self._actor, request
            )
            if self.earlier is None:
                self._renewing = asyncio.create_task(
                    self._renew_idempotency_key_periodically(request)
                )
        return self

    async def _renew_idempotency_key_periodically(
        self, request: idempotency.IdempotentRequestIdentity
    ) -> None:
        while True:
            await asyncio.sleep(idempotency.RENEW_S)
            with suppress_database_outage("idempotency key"):
                await to_thread.run_sync(
                    idempotency.renew_idempotent_request, self._db, self._actor, request
                )

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is None or self._request is None:
            return
        self._renewing.cancel()
        # Awaited, so that no renewal is still running when the key is released.
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
        # The client may send a failed upload again at once, without waiting for the lease to end.
        if not self.is_done:
            with suppress_database_outage("idempotency key"):
                await to_thread.run_sync(
                    idempotency.release_idempotency_key, self._db, self._actor, self._request
                )

    def find_response_by_head(self, head: UploadRequestHead) -> Response | None:
        """Return the stored response if the request's headers alone identify a repetition, else
        None.

        Raises:
            IdempotencyMismatch: the head alone shows that the request is a different one.
        """
        assert self.earlier is not None and self._request is not None
        if self.earlier.request != self._request.request:
            raise idempotency.make_reused_idempotency_key_error()
        if head.digest is not None and head.digest == self.earlier.content_sha256:
            return _build_repeated_response(self.earlier)
        # A form's digest differs with its boundary, so its file has to be compared.
        if head.digest is not None and head.boundary is None:
            raise idempotency.make_reused_idempotency_key_error()
        return None

    def get_stored_response_if_body_matches(
        self, request_identity: idempotency.IdempotentRequestIdentity | None
    ) -> Response:
        """Return the stored response to a repeated request, whose body is compared with the first
        one.

        Raises:
            IdempotencyMismatch: the earlier request was a different one.
        """
        assert self.earlier is not None and request_identity is not None
        if self.earlier.fingerprint != request_identity.fingerprint:
            raise idempotency.make_reused_idempotency_key_error()
        return _build_repeated_response(self.earlier)

    def build_request_with_file_fingerprint(
        self, file: ReceivedUpload
    ) -> idempotency.IdempotentRequestIdentity | None:
        """Add the digest of the uploaded file to the idempotent request; None without a key."""
        fields = (file.fields.get(name) for name in self._terms.fields or ())
        return self.build_request_with_body_fingerprint(file.body_sha256, *fields, file.sha256)

    def build_request_with_body_fingerprint(
        self, sha256: str, *parts: str | None
    ) -> idempotency.IdempotentRequestIdentity | None:
        """Add the digest of the body to the idempotent request; None without a key.

        Args:
            sha256: digest of the body.
            parts: other parts that a repetition must have in common.
        """
        if self._request is None:
            return None
        fingerprint = idempotency.digest_request_for_idempotency(self._request.request, *parts)
        return replace(self._request, fingerprint=fingerprint, content_sha256=sha256)


def _build_repeated_response(earlier: idempotency.ReplayedResponse) -> Response:
    return build_json_response(earlier.body, earlier.status, earlier.headers, replay=True)
