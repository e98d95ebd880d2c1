"""All errors that a user can meet, each with a stable code.

`code` becomes the path of the RFC 9457 problem (`/problems/<code>`) and `status` its HTTP status.
The message becomes its `detail`: what is wrong, where, and what to do. `fields` lists single wrong
fields as `{"field": "recipe.epochs", "message": "…"}`. `extra` is added to the problem unchanged
(for example the state of a job that rejected an action).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class PerennialError(Exception):
    """Base class of all errors of the service. Subclasses set `code`, `title` and `status`."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500

    def __init__(
        self,
        detail: str,
        *,
        fields: Sequence[Mapping[str, str]] = (),
        extra: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = [dict(f) for f in fields]
        # Copied, because callers add to it.
        self.extra = dict(extra or {})
        self.retry_after_s = retry_after_s


class Invalid(PerennialError):
    """Error: a request is well-formed but its content is not valid."""

    code, title, status = "invalid", "Invalid request", 422


class InvalidRecipe(Invalid):
    """Error: a recipe has an unknown name, a bad value or a combination that the method excludes."""

    code, title = "invalid-recipe", "Invalid recipe"


class NotFound(PerennialError):
    """Error: an object does not exist or belongs to another owner."""

    code, title, status = "not-found", "Not found", 404


class ObjectGone(PerennialError):
    """Error: an object existed and is no longer retained; the detail says why."""

    code, title, status = "gone", "Kept no longer", 410


class NotAuthenticated(PerennialError):
    """Error: a request has no key, or an unknown, revoked or expired one."""

    code, title, status = "not-authenticated", "Not authenticated", 401


class InsufficientKeyScope(PerennialError):
    """Error: the scope of the caller's key does not cover the request."""

    code, title, status = "not-allowed", "Not allowed", 403


class NameTaken(PerennialError):
    """Error: another object of the same owner already has this name."""

    code, title, status = "name-taken", "Name already taken", 409


class NameAmbiguous(PerennialError):
    """Error: objects of several owners have this name; `extra["models"]` lists id and owner of
    each.
    """

    code, title, status = "name-ambiguous", "Name of several objects", 409


class WrongState(PerennialError):
    """Error: the object's current state does not allow the action.

    `extra["state"]` names the state.
    """

    code, title, status = "wrong-state", "Not possible in the current state", 409


class OffsetMismatch(PerennialError):
    """Error: a request resumes an upload at a wrong offset.

    `extra` has the upload's `offset` and `length` in bytes.
    """

    code, title, status = "offset-mismatch", "Another offset", 409


class UploadIncomplete(PerennialError):
    """Error: an upload lacks bytes that are needed now; `extra` has its `offset` and `length` in
    bytes.
    """

    code, title, status = "upload-incomplete", "Upload incomplete", 409


class UploadLocked(PerennialError):
    """Error: another request is writing to the upload; try again when it has ended."""

    code, title, status = "upload-locked", "Upload in use", 423


class ChecksumMismatch(PerennialError):
    """Error: a piece of an upload does not match its Upload-Checksum.

    The status is defined by tus.
    """

    code, title, status = "checksum-mismatch", "Checksum mismatch", 460


class UnsupportedTusVersion(PerennialError):
    """Error: a request uses a version of the tus protocol that is not supported."""

    code, title, status = "protocol-version", "Version of tus not supported", 412


class IdempotencyInFlight(PerennialError):
    """Error: the first request with this idempotency key is still being processed."""

    code, title, status = "idempotency-in-flight", "First request still in flight", 409


class IdempotencyMismatch(PerennialError):
    """Error: the idempotency key was already used with a different request."""

    code, title, status = "idempotency-mismatch", "Idempotency key reused", 422


class BadRequest(PerennialError):
    """Error: the received bytes are not an HTTP request, or an ambiguous one."""

    code, title, status = "bad-request", "Bad request", 400


class RequestHeadTooLarge(PerennialError):
    """Error: a request's head, or data between the chunks of its body, exceeds the limit."""

    code, title, status = "head-too-large", "Head of the request too large", 431


class RequestHeadTimeout(PerennialError):
    """Error: a request's head was not complete in time."""

    code, title, status = "head-timeout", "Head of the request too slow", 408


class BodyTooLarge(PerennialError):
    """Error: a request's body exceeds the limit in bytes."""

    code, title, status = "body-too-large", "Body too large", 413


class BodyTimeout(PerennialError):
    """Error: a request's body arrives too slowly."""

    code, title, status = "body-timeout", "Body too slow", 408


class TooManyRequests(PerennialError):
    """Error: the caller makes too many requests or has reached a quota; try again later."""

    code, title, status = "too-many-requests", "Too many requests", 429


class StorageQuotaReached(TooManyRequests):
    """Error: the owner's stored bytes have reached their limit; `extra` has `used` and `limit`."""

    code, title, status = "storage-full", "Storage quota reached", 429


class BodyTruncated(PerennialError):
    """Error: a request's body has fewer or more bytes than declared, or its client disconnected."""

    code, title, status = "body-truncated", "Body incomplete", 400


class DigestMismatch(PerennialError):
    """Error: the digest of a request's body is not the one that the client declared."""

    code, title, status = "digest-mismatch", "Digest mismatch", 422


class UnsupportedContentType(PerennialError):
    """Error: the content type is unknown or contradicts the first bytes of the body."""

    code, title, status = "unsupported-type", "Unsupported content type", 415


class ArchiveInvalid(PerennialError):
    """Error: an uploaded archive cannot be read: broken, empty, or of no known layout."""

    code, title, status = "archive-invalid", "Archive unusable", 422


class ArchiveHeldOutOnly(ArchiveInvalid):
    """Error: an archive has only held-out images, and no adopted classifier waits to be measured."""


class ArchiveHostile(PerennialError):
    """Error: an uploaded archive is built to attack its reader.

    Examples are paths, links, overlaps, bombs, wrong sizes, duplicates, nested archives and
    pickles.
    """

    code, title, status = "archive-hostile", "Archive refused", 422


class ArchiveTooLarge(PerennialError):
    """Error: an uploaded archive exceeds a limit (entries, unpacked bytes, classes)."""

    code, title, status = "archive-too-large", "Archive too large", 413


class LabelsInvalid(PerennialError):
    """Error: labels of a batch that the model or the format does not allow."""

    code, title, status = "labels-invalid", "Labels not allowed", 422


class JobTooLarge(PerennialError):
    """Error: a network or job exceeds the service's limits; `extra` has `needed` and `limit`."""

    code, title, status = "job-too-large", "Job too large", 422


class BaseInvalid(PerennialError):
    """Error: an uploaded base's header, tensor names, shapes or types do not fit the architecture."""

    code, title, status = "base-invalid", "Base unusable", 422


class PretrainedWeightsUnavailable(PerennialError):
    """Error: pretrained weights cannot be downloaded.

    Reasons are no network, a missing file, too many bytes, or bytes with another digest.
    """

    code, title, status = "weights-unavailable", "Pretrained weights not available", 422


class ExportUnavailable(PerennialError):
    """Error: an export format is unknown or not available for this version."""

    code, title, status = "export-unavailable", "Export unavailable", 422


class WebhooksNotSetUp(PerennialError):
    """Error: the service has no key to derive webhook secrets from.

    The detail tells an operator what to do.
    """

    code, title, status = "webhooks-unavailable", "Webhooks not set up", 422


class VersionPredictionsNotStored(PerennialError):
    """Error: versions cannot be compared, because their predictions are not retained image by
    image.

    `extra["missing"]` lists version and task of each.
    """

    code, title, status = "answers-missing", "No answers to compare", 409


class AnytimeStateUnavailable(PerennialError):
    """Error: a job has no intermediate state to download now; the detail says if there will be one."""

    code, title, status = "anytime-unavailable", "No anytime state", 409


class ImageInvalid(PerennialError):
    """Error: an image sent for prediction cannot be decoded."""

    code, title, status = "image-invalid", "Image unusable", 422


class Unavailable(PerennialError):
    """Error: a part of the service (database, store, predict helper) does not respond; try again."""

    code, title, status = "unavailable", "Temporarily unavailable", 503


class TooManyConnections(Unavailable):
    """Error: the service, or one client address, has reached its limit of open connections."""

    code, title = "too-many-connections", "Too many connections"


class ServiceDiskFull(Unavailable):
    """Error: the service's disk is full. Nothing can be stored until there is room again."""

    code, title, status = "no-space", "No room on the service's disk", 507

    def __init__(self, detail: str, *, retry_after_s: int | None = 60) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)


class DatabaseCorrupt(PerennialError):
    """Error: the database file is damaged; `/readyz` describes the damage."""

    code, title, status = "database-corrupt", "Database damaged", 500


class ProcessCannotStart(Unavailable):
    """Error: a process cannot start because it lacks a requirement.

    Requirements are file descriptors, a writable data directory and a sound database file.
    """

    code, title = "cannot-start", "Cannot start"


class SchemaOutdated(Unavailable):
    """Error: the database schema is older than the code (run `perennial migrate`) or newer."""

    code, title = "schema-outdated", "Database schema outdated"


class StoredObjectDamaged(PerennialError):
    """Error: a stored object is missing or its bytes do not match its digest."""

    code, title, status = "store-corrupt", "Stored object damaged", 500


class Rejected(PerennialError):
    """Error that ends a job: its batch proved unusable when it was decoded.

    This is the client's fault and never retried.

    `extra["report"]` has the ingest report.
    """

    code, title, status = "batch-rejected", "Batch rejected", 422


class BatchHeldForFindings(Rejected):
    """Error that ends a job: its batch is not learned because of findings in its data, as its
    recipe demands.

    The recipe says `"data_report": "hold"`. The batch is retained for a retry.
    """

    code, title, status = "data-held", "Batch held for its data", 422


class LeaseLost(PerennialError):
    """Error: the worker's lease on a job ran out.

    Another worker may own the job: stop, write nothing more.
    """

    code, title, status = "lease-lost", "Lease lost", 409
