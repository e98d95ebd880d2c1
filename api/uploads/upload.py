"""Stage 2 of an upload, and the order of all stages: a place, precheck, receive, commit."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Header, Request
from starlette.responses import Response

from api.dependencies import Config, Db, IdempotencyKey
from api.uploads.body import ReceivedUpload, receive_body_into_spool
from api.uploads.repeat import UploadIdempotency
from api.uploads.request_checks import UploadRequestHead, UploadRouteRules, check_upload_head
from core.database.session import Database
from core.errors import TooManyRequests
from core.requests import idempotency
from core.requests.actor import Actor
from core.settings import Settings

Precheck = Callable[[int | None], None]
"""Refuses an upload by the declared length of its body in bytes; runs in a thread."""
Commit = Callable[
    [ReceivedUpload, idempotency.IdempotentRequestIdentity | None], Awaitable[Response]
]
"""Performs the purpose of the upload, and stores its response under the key."""
ContentDigest = Annotated[
    str | None, Header(alias="Content-Digest", description="sha-256=:BASE64: of the body; verified")
]


@dataclass(frozen=True)
class UploadReception:
    """Reception of one upload by a route, from its headers to its response.

        head = upload.check_request_head(limit)
        with upload.hold_upload_slot():
            return await upload.receive_and_commit_upload(head, precheck, commit)

    Attributes:
        key: its idempotency key, or None.
    """

    request: Request
    actor: Actor
    terms: UploadRouteRules
    db: Database
    settings: Settings
    key: str | None

    def check_request_head(self, limit: int) -> UploadRequestHead:
        """Check the headers of the upload request; raises as `api.uploads.request_checks.check_upload_head`.

        Args:
            limit: maximum size of the file in bytes.
        """
        return check_upload_head(self.request, self.terms, limit, self.settings)

    @contextmanager
    def hold_upload_slot(self) -> Iterator[None]:
        """Take one of the owner's places for uploads in progress.

        Raises:
            TooManyRequests: all are taken.
        """
        under_way: dict[str, int] = self.request.app.state.uploads
        owner, max_uploads = self.actor.owner_id, self.settings.max_uploads
        # Nothing is awaited between look and count, so requests cannot overtake each other.
        if under_way.get(owner, 0) >= max_uploads:
            raise TooManyRequests(
                f"You have {max_uploads} uploads under way: wait for one to end.", retry_after_s=5
            )
        under_way[owner] = under_way.get(owner, 0) + 1
        try:
            yield
        finally:
            under_way[owner] -= 1
            if not under_way[owner]:
                del under_way[owner]

    async def receive_and_commit_upload(
        self, head: UploadRequestHead, precheck: Precheck, commit: Commit
    ) -> Response:
        """Check, receive and commit an upload; or return the earlier response to the same key.

        Raises:
            IdempotencyMismatch, IdempotencyInFlight: see `core.requests.idempotency`.
            PerennialError: as `precheck`, `api.uploads.body.receive_body_into_spool` and `commit`.
        """
        async with UploadIdempotency(
            self.db, self.actor, self.terms, self.request, self.key
        ) as repeat:
            # A repeated response needs no room.
            if repeat.earlier is None:
                await to_thread.run_sync(precheck, head.length)
            elif (repeated := repeat.find_response_by_head(head)) is not None:
                return repeated
            async with receive_body_into_spool(
                self.request, head, self.terms, self.settings
            ) as file:
                if repeat.earlier is not None:
                    return repeat.get_stored_response_if_body_matches(
                        repeat.build_request_with_file_fingerprint(file)
                    )
                response = await commit(file, repeat.build_request_with_file_fingerprint(file))
                # The key has this response now, and must not be released for another request.
                repeat.is_done = True
                return response


def make_upload_reception_dependency(
    terms: UploadRouteRules,
) -> Callable[..., Awaitable[UploadReception]]:
    """Return a FastAPI dependency that creates an `UploadReception` with a route's rules."""

    async def make_upload_reception(
        request: Request,
        db: Db,
        settings: Config,
        idempotency_key: IdempotencyKey = None,
        content_digest: ContentDigest = None,
    ) -> UploadReception:
        del content_digest  # declared for the documentation; `check_request_head` reads it
        return UploadReception(request, request.state.actor, terms, db, settings, idempotency_key)

    return make_upload_reception
