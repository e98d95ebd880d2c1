"""Every error a person can meet, in one place, each with a stable code.

`code` becomes the path of the RFC 9457 problem (`/problems/<code>`), `status` its HTTP status, and the
message its `detail`: what was wrong, where, and what to do. `fields` lists single wrong fields as
`{"field": "recipe.epochs", "message": "…"}`. `extra` is added to the problem as it is (for example the
state of a job that refused an action).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class PerennialError(Exception):
    """Base of all typed errors. Subclasses fix `code`, `title` and `status`."""

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
        self.extra = dict(extra or {})
        self.retry_after_s = retry_after_s


class Invalid(PerennialError):
    """A request that is well-formed but says something impossible."""

    code, title, status = "invalid", "Invalid request", 422


class InvalidRecipe(Invalid):
    """A recipe with an unknown name, a bad value or a combination that the method excludes."""

    code, title = "invalid-recipe", "Invalid recipe"


class NotFound(PerennialError):
    """The object does not exist, or belongs to another owner."""

    code, title, status = "not-found", "Not found", 404


class Gone(PerennialError):
    """The object was there and is kept no longer; the detail says why."""

    code, title, status = "gone", "Kept no longer", 410


class NotAuthenticated(PerennialError):
    """No key, or a key that is unknown, revoked or expired."""

    code, title, status = "not-authenticated", "Not authenticated", 401


class NotAllowed(PerennialError):
    """The key's scope does not cover the call."""

    code, title, status = "not-allowed", "Not allowed", 403


class NameTaken(PerennialError):
    """Another object of the same owner has this name."""

    code, title, status = "name-taken", "Name already taken", 409


class NameAmbiguous(PerennialError):
    """Several owners have an object of this name; `extra["models"]` lists id and owner of each."""

    code, title, status = "name-ambiguous", "Name of several objects", 409


class WrongState(PerennialError):
    """The object's current state does not allow the action; `extra["state"]` names it."""

    code, title, status = "wrong-state", "Not possible in the current state", 409


class OffsetMismatch(PerennialError):
    """An upload is not where the request would go on; `extra` holds its `offset` and `length` in bytes."""

    code, title, status = "offset-mismatch", "Another offset", 409


class UploadIncomplete(PerennialError):
    """An upload lacks bytes that are needed now; `extra` holds its `offset` and `length` in bytes."""

    code, title, status = "upload-incomplete", "Upload incomplete", 409


class UploadLocked(PerennialError):
    """Another request is writing to the upload; try again when it has ended."""

    code, title, status = "upload-locked", "Upload in use", 423


class ChecksumMismatch(PerennialError):
    """A piece of an upload has another checksum than its Upload-Checksum says (the status is that of tus)."""

    code, title, status = "checksum-mismatch", "Checksum mismatch", 460


class ProtocolVersion(PerennialError):
    """The request speaks a version of tus that is not spoken here."""

    code, title, status = "protocol-version", "Version of tus not supported", 412


class IdempotencyInFlight(PerennialError):
    """The first request with this idempotency key has not been answered yet."""

    code, title, status = "idempotency-in-flight", "First request still in flight", 409


class IdempotencyMismatch(PerennialError):
    """The idempotency key was used with another request."""

    code, title, status = "idempotency-mismatch", "Idempotency key reused", 422


class BadRequest(PerennialError):
    """What came is no HTTP request, or one that can be read in two ways."""

    code, title, status = "bad-request", "Bad request", 400


class HeadTooLarge(PerennialError):
    """The head of a request, or what comes between the pieces of its body, exceeds the limit."""

    code, title, status = "head-too-large", "Head of the request too large", 431


class HeadTimeout(PerennialError):
    """The head of a request was not complete in time."""

    code, title, status = "head-timeout", "Head of the request too slow", 408


class BodyTooLarge(PerennialError):
    """The body exceeds the limit."""

    code, title, status = "body-too-large", "Body too large", 413


class BodyTimeout(PerennialError):
    """The body comes too slowly."""

    code, title, status = "body-timeout", "Body too slow", 408


class TooManyRequests(PerennialError):
    """The caller does too much at once, or has reached a quota; try again later."""

    code, title, status = "too-many-requests", "Too many requests", 429


class StorageFull(TooManyRequests):
    """The owner's bytes in the store have reached their limit; `extra` holds `used` and `limit`."""

    code, title, status = "storage-full", "Storage quota reached", 429


class BodyTruncated(PerennialError):
    """The client went away, or sent fewer or more bytes than it declared."""

    code, title, status = "body-truncated", "Body incomplete", 400


class DigestMismatch(PerennialError):
    """The body's digest is not the one that the client declared."""

    code, title, status = "digest-mismatch", "Digest mismatch", 422


class UnsupportedType(PerennialError):
    """The declared content type is unknown or contradicts the first bytes."""

    code, title, status = "unsupported-type", "Unsupported content type", 415


class ArchiveInvalid(PerennialError):
    """The archive cannot be read: broken, empty, or of no known layout."""

    code, title, status = "archive-invalid", "Archive unusable", 422


class ArchiveHostile(PerennialError):
    """The archive attacks its reader (path, link, overlap, bomb, lying size, duplicate, nested, pickle)."""

    code, title, status = "archive-hostile", "Archive refused", 422


class ArchiveTooLarge(PerennialError):
    """The archive exceeds a limit (entries, unpacked bytes, classes)."""

    code, title, status = "archive-too-large", "Archive too large", 413


class LabelsInvalid(PerennialError):
    """Labels that the model or the format does not allow."""

    code, title, status = "labels-invalid", "Labels not allowed", 422


class JobTooLarge(PerennialError):
    """A network or a job beyond what the service takes; `extra` holds `needed` and `limit`."""

    code, title, status = "job-too-large", "Job too large", 422


class BaseInvalid(PerennialError):
    """An uploaded base whose header, names, shapes or dtypes do not fit the architecture."""

    code, title, status = "base-invalid", "Base unusable", 422


class WeightsUnavailable(PerennialError):
    """Pretrained weights that cannot be had: no network, no such file, too many bytes, or other bytes than
    were named."""

    code, title, status = "weights-unavailable", "Pretrained weights not available", 422


class ExportUnavailable(PerennialError):
    """The asked export format is unknown or not available for this version."""

    code, title, status = "export-unavailable", "Export unavailable", 422


class WebhooksUnavailable(PerennialError):
    """The service has no key of which secrets of webhooks are made; the detail says what an operator does."""

    code, title, status = "webhooks-unavailable", "Webhooks not set up", 422


class AnswersMissing(PerennialError):
    """What a version answered image by image is not kept; `extra["missing"]` lists version and task."""

    code, title, status = "answers-missing", "No answers to compare", 409


class AnytimeUnavailable(PerennialError):
    """The job has no state to download now; the detail says whether it will have one."""

    code, title, status = "anytime-unavailable", "No anytime state", 409


class ImageInvalid(PerennialError):
    """Images sent for prediction that cannot be decoded."""

    code, title, status = "image-invalid", "Image unusable", 422


class Unavailable(PerennialError):
    """A part of the service (database, store, predict helper) does not answer; try again."""

    code, title, status = "unavailable", "Temporarily unavailable", 503


class TooManyConnections(Unavailable):
    """The service, or one address, has as many connections open as it may."""

    code, title = "too-many-connections", "Too many connections"


class NoSpace(Unavailable):
    """A disk of the service is full: nothing can be stored until there is room again."""

    code, title, status = "no-space", "No room on the service's disk", 507

    def __init__(self, detail: str, *, retry_after_s: int | None = 60) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)


class DatabaseCorrupt(PerennialError):
    """The file of the database is damaged; `/readyz` says what of it."""

    code, title, status = "database-corrupt", "Database damaged", 500


class CannotStart(Unavailable):
    """A process lacks what it needs to start: descriptors, a directory that can be written, a sound database file."""

    code, title = "cannot-start", "Cannot start"


class SchemaOutdated(Unavailable):
    """The database schema is older than the code: run `alembic upgrade head` first."""

    code, title = "schema-outdated", "Database schema outdated"


class StoreCorrupt(PerennialError):
    """An object of the store is missing or its bytes do not match its digest."""

    code, title, status = "store-corrupt", "Stored object damaged", 500


class Rejected(PerennialError):
    """A batch that decoding showed to be unusable: the client's fault, never retried.

    `extra["report"]` carries the ingest report.
    """

    code, title, status = "batch-rejected", "Batch rejected", 422


class DataHeld(Rejected):
    """A batch whose recipe says that such findings hold it: `"data_report": "hold"`. It is kept for a retry."""

    code, title, status = "data-held", "Batch held for its data", 422


class LeaseLost(PerennialError):
    """The worker's lease on a job ran out and another may own it: stop, write nothing more."""

    code, title, status = "lease-lost", "Lease lost", 409
