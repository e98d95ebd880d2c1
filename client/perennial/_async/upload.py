"""Submission of a batch: in one request, or in resumable pieces if it is large (tus 1.0.0)."""

from __future__ import annotations

import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perennial._async.http import ApiRequest, AsyncHttp, Content
from perennial._async.waiting import iterate_in_thread, run_in_thread, sleep_seconds
from perennial.errors import (
    APIError,
    ArchiveRejected,
    BadAnswer,
    ConfigError,
    PerennialError,
    ServiceUnreachable,
    Unavailable,
)
from perennial.guard import (
    build_api_path,
    require_location_below_path,
    require_number_in_response_header,
)
from perennial.responses import ApiResponse
from perennial.transfer import (
    CHUNK_BYTES,
    WHOLE_BYTES,
    FileSource,
    Progress,
    TransferSource,
    UploadLocationCache,
    compute_source_fingerprint,
    compute_tus_checksum_header,
    format_content_digest,
)

TUS = {"Tus-Resumable": "1.0.0"}
ANSWER_S = 600.0
"""Timeout of the response to a batch: the service first reads the directory of its archive."""
GONE = (404, 410)
KEPT = "What has arrived is kept: submit the same batch again, and it goes on there."
UPLOADS = "/v1/uploads"
MOST_CREATED = 5
"""Maximum number of uploads begun for one batch, each because the service has lost the one
before.
"""
# Even in base64 well below the 4,096 characters that the service takes of Upload-Metadata.
LONGEST_NAME = 1000
"""Maximum bytes of a file name."""
AGAIN = (409, 423, 460)
"""Statuses after which a piece is sent again.

The service has another offset than expected, another request is still writing, or the checksum of
the piece differed.
"""


@dataclass(frozen=True)
class BatchToSubmit:
    """A batch to send to a model: its bytes and submit options.

    Attributes:
        query: query parameters such as `name`, `validate`, `duplicates_policy`.
        recipe: an override; None: the model's own.
    """

    model: str
    source: TransferSource
    query: Mapping[str, str]
    recipe: Mapping[str, Any] | None


async def send_batch(
    http: AsyncHttp,
    batch: BatchToSubmit,
    progress: Progress | None,
    whole_bytes: int = WHOLE_BYTES,
) -> Any:
    """Send a batch to the service in one request or in pieces, and return the JSON response.

    Raises:
        ArchiveRejected: the batch cannot be used.
        APIError, ServiceUnreachable: as for any request.
    """
    size = await run_in_thread(lambda: batch.source.size)
    if size >= whole_bytes:
        upload = _ResumableUpload(http, batch, size, progress)
        if await upload.begin_or_resume_upload():
            return await upload.upload_and_submit()
    return await _send_in_one_request(http, batch, size, progress)


async def _send_in_one_request(
    http: AsyncHttp, batch: BatchToSubmit, size: int, progress: Progress | None
) -> Any:
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size),
        # The service compares it with the bytes received, so damage on the way is noticed.
        "Content-Digest": format_content_digest(await run_in_thread(batch.source.sha256)),
    }
    if batch.recipe is not None:
        headers["Perennial-Recipe"] = json.dumps(batch.recipe)

    body = make_upload_body_reader(batch.source, size, progress)
    ask = ApiRequest(
        "POST",
        build_api_path("models", batch.model, "tasks"),
        batch.query,
        content=body,
        headers=headers,
        timeout_s=ANSWER_S,
    )
    return (await http.send(ask)).json()


def make_upload_body_reader(
    source: TransferSource, size: int, progress: Progress | None
) -> Content:
    """Return a function that reads a body from a source, from its first byte at every attempt."""

    async def iterate_body_chunks() -> AsyncIterator[bytes]:
        done = 0
        async for chunk in iterate_in_thread(source.read_chunks()):
            yield chunk
            # Counted after the yield, when the chunk has been passed on.
            done += len(chunk)
            if progress is not None:
                progress(done, size)

    return iterate_body_chunks


class _ResumableUpload:
    """A resumable upload of one batch: begin or resume it, send its pieces, submit it."""

    def __init__(
        self, http: AsyncHttp, batch: BatchToSubmit, size: int, progress: Progress | None
    ) -> None:
        self._http, self._batch, self._size, self._progress = http, batch, size, progress
        self._known = self._location = ""
        self._created = 0
        self._answer: Any = None

    async def begin_or_resume_upload(self) -> bool:
        """Resume the upload of an earlier run, or begin one; return False if the service cannot."""
        batch = self._batch
        # Taken before the first byte is read: `_require_file_unchanged` compares the file with it.
        self._known = await run_in_thread(lambda: compute_source_fingerprint(batch.source))
        self._memory = await run_in_thread(
            lambda: UploadLocationCache(self._http.url, batch.model, self._known)
        )
        earlier_location = await run_in_thread(self._memory.read_upload_location)
        if earlier_location is not None and await self._resume_or_resubmit_earlier_upload(
            self._check_upload_location(earlier_location)
        ):
            return True
        # An unknown model is an error now instead of after hours of uploading.
        await self._http.send(ApiRequest("GET", build_api_path("models", batch.model)))
        try:
            await self._create_upload()
        except APIError as error:
            if error.status in (404, 405):  # an older service without resumable uploads
                return False
            raise
        return True

    async def upload_and_submit(self) -> Any:
        """Send the missing pieces of the upload, then submit it as a batch."""
        if self._answer is not None:
            return self._answer
        while True:
            try:
                await self._send_missing_pieces()
            # Pieces that have arrived stay at the service, also after Ctrl-C: the note says so.
            except (ServiceUnreachable, Unavailable, KeyboardInterrupt) as error:
                error.add_note(KEPT)
                raise
            await self._abort_upload_if_file_changed()
            try:
                return await self._submit_upload()
            except APIError as error:
                if isinstance(error, ArchiveRejected) or error.code == "unsupported-type":
                    # It would be refused again with any other recipe or name.
                    await self._delete_abandoned_upload()
                # The model may be missing as well; only a missing upload is begun again.
                if error.status != 404 or "upl_" not in error.detail:
                    raise
                await self._create_upload()  # It expired between the last piece and the submission.

    async def _abort_upload_if_file_changed(self) -> None:
        """Delete the upload and raise ConfigError if the file changed, so that pieces do not fit
        together.
        """
        # Bytes cannot change, and a packed source compares each file while it reads.
        if isinstance(self._batch.source, FileSource) and self._known != await run_in_thread(
            self._batch.source.identity
        ):
            await self._delete_abandoned_upload()
            raise ConfigError(
                f"{self._batch.source.path} was changed while it was sent; nothing of it was "
                f"submitted. Send it again."
            )

    async def _delete_abandoned_upload(self) -> None:
        """Delete an upload that will not be used, so that it does not fill the owner's quota."""
        await run_in_thread(self._memory.remove_upload_location)
        # The service removes it later by itself, and this error would hide the one to report.
        with contextlib.suppress(PerennialError):
            await self._http.send(ApiRequest("DELETE", self._location, headers=TUS))

    async def _resume_or_resubmit_earlier_upload(self, location: str) -> bool:
        """Return True if the service still has the upload that an earlier run began, or learned it."""
        self._location = location
        if await self._fetch_received_bytes(self._http) is not None:
            return True
        try:
            # It may be gone because an earlier run has submitted it: a repeated request gets the
            # same response as before.
            self._answer = await self._submit_upload()
        except APIError as error:
            if error.status in GONE:
                return False
            raise
        return True

    async def _create_upload(self) -> None:
        headers = {
            **TUS,
            "Upload-Length": str(self._size),
            "Upload-Metadata": self._build_upload_metadata(),
        }
        if self._created == MOST_CREATED:
            raise BadAnswer(
                f"The service has lost {MOST_CREATED} uploads of this batch, one after the other."
            )
        self._created += 1
        response = await self._http.send(ApiRequest("POST", UPLOADS, headers=headers))
        self._location = self._check_upload_location(response.headers.get("Location", ""))
        # Stored before the first piece, so that a run that is killed can be resumed.
        await run_in_thread(lambda: self._memory.store_upload_location(self._location))

    def _check_upload_location(self, location: str) -> str:
        """Return the URL path of a created upload. Raises BadAnswer if it is on another server."""
        return require_location_below_path(location, self._http.url, f"{UPLOADS}/")

    def _build_upload_metadata(self) -> str:
        """Return Upload-Metadata with the file's or batch's name, for people who list uploads."""
        file = getattr(self._batch.source, "path", None)
        name = (
            f"{self._batch.query.get('name') or self._batch.model}.tar"
            if file is None
            else file.name
        )
        return (
            f"filename {base64.b64encode(name.encode('utf-8', 'replace')[:LONGEST_NAME]).decode()}"
        )

    async def _fetch_received_bytes(self, http: AsyncHttp) -> int | None:
        """Return the number of bytes of the upload that the service has; None if it does not know
        it.
        """
        try:
            response = await http.send(ApiRequest("HEAD", self._location, headers=TUS))
        except APIError as error:
            if error.status in GONE:
                return None
            raise
        return self._parse_upload_offset(response)

    def _parse_upload_offset(self, response: ApiResponse) -> int:
        offset = require_number_in_response_header(
            response.headers.get("Upload-Offset"), "Upload-Offset"
        )
        if offset > self._size:
            raise BadAnswer(f"The service has {offset:,} bytes of an upload of {self._size:,}.")
        return offset

    async def _send_missing_pieces(self) -> None:
        """Send the upload's pieces from the service's offset on; after an interruption ask for it
        again.
        """
        # A repeated piece needs the service's current offset, so retries happen here and not in the
        # connection.
        failures, reached_before, once = 0, 0, self._http.copy_without_retries()
        while True:
            try:
                offset = await self._fetch_received_bytes(once)
                if offset is None:
                    await self._create_upload()
                    reached_before = 0
                    continue
                # The upload advances, however early a piece was cut off.
                if offset > reached_before:
                    failures, reached_before = 0, offset
                async for reached in self._send_pieces_from_offset(once, offset):
                    # Count only progress: a service that forgets bytes would otherwise receive them
                    # without end.
                    if reached > reached_before:
                        failures, reached_before = 0, reached
                    if self._progress is not None:
                        self._progress(reached, self._size)
                return
            except PerennialError as error:
                failures += 1
                pause = self._compute_pause_seconds(error, failures)
                if pause is None:
                    raise
                await sleep_seconds(pause)

    def _compute_pause_seconds(self, error: PerennialError, failures: int) -> float | None:
        """Return the seconds to wait after a failed attempt to send a piece, or None to give up."""
        retries = self._http.retries.copy_with_more_attempts()
        if isinstance(error, APIError) and error.status in (*AGAIN, *GONE):
            # The service answers and is not overloaded, so short pauses suffice.
            return min(failures, 5) * 1.0 if failures < retries.attempts else None
        return retries.compute_pause_seconds(error, failures, is_replayable=True)

    async def _send_pieces_from_offset(self, http: AsyncHttp, offset: int) -> AsyncIterator[int]:
        """Send the upload piece by piece from an offset, and yield the offset after each."""
        pieces = cut_into_pieces(self._batch.source.read_chunks(offset), CHUNK_BYTES)
        # `iterate_in_thread` computes the checksums as well, since hashing a piece takes
        # milliseconds.
        async for piece, checksum in iterate_in_thread(
            (piece, compute_tus_checksum_header(piece)) for piece in pieces
        ):
            headers = {
                **TUS,
                "Content-Type": "application/offset+octet-stream",
                "Upload-Offset": str(offset),
                "Upload-Checksum": checksum,
            }
            ask = ApiRequest(
                "PATCH", self._location, content=piece, headers=headers, timeout_s=ANSWER_S
            )
            reached = self._parse_upload_offset(await http.send(ask))
            if reached != offset + len(piece):
                raise BadAnswer(
                    f"The service has {reached:,} bytes, where {offset + len(piece):,} were sent."
                )
            offset = reached
            yield offset

    async def _submit_upload(self) -> Any:
        batch = self._batch
        body: dict[str, Any] = {"upload": self._location.rpartition("/")[2]}
        if batch.recipe is not None:
            body["recipe"] = dict(batch.recipe)
        if "name" in batch.query:
            body["name"] = batch.query["name"]
        query = {key: value for key, value in batch.query.items() if key != "name"}
        # The same key in every run that submits the same: it gets the response of the first.
        request_text = json.dumps([self._location, body, query], sort_keys=True)
        headers = {"Idempotency-Key": str(uuid.uuid5(uuid.NAMESPACE_URL, request_text))}
        where = build_api_path("models", batch.model, "tasks")
        ask = ApiRequest("POST", where, query, json=body, headers=headers, timeout_s=ANSWER_S)
        response = (await self._http.send(ask)).json()
        # After a check the upload stays, for the submit that follows it.
        if "validate" not in query:
            await run_in_thread(self._memory.remove_upload_location)
        return response


def cut_into_pieces(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `size` bytes, the last one shorter."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)
