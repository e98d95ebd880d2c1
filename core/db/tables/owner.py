"""Owners, their keys, and sessions of people who logged in with a key."""

from sqlalchemy import ForeignKey, String, false
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import JSON_COLUMN, Table
from core.protocol.usage import OwnerMeasured


class Owner(Table):
    """A tenant, who sees only its own objects."""

    __tablename__ = "owners"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    bytes: Mapped[int | None]  # stored bytes, see core.db.stored_bytes
    bytes_at: Mapped[float | None]  # time of that measurement
    # rows and bytes, see core.db.usage
    usage: Mapped[OwnerMeasured | None] = mapped_column(JSON_COLUMN)
    usage_at: Mapped[float | None]  # time at which a worker last began to measure it
    # time at which a worker last claimed one of the owner's jobs, see core.work.turns
    claimed_at: Mapped[float | None]
    # True if that job was claimed before an older one
    overtook: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[float]


class Key(Table):
    """An access key; only the SHA-256 digest of its text is stored."""

    __tablename__ = "keys"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)  # public part of the text
    hash: Mapped[str] = mapped_column(String(64))
    scope: Mapped[str] = mapped_column(String(8))  # scrape, predict, read, write, admin
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    created_at: Mapped[float]


class PredictKey(Table):
    """Alias, limits and counters of a key of scope predict."""

    __tablename__ = "predict_keys"
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    alias: Mapped[str] = mapped_column(String(63))
    requests_per_s: Mapped[float]
    images_per_day: Mapped[int]
    # day of its last request, counted from 1970-01-01 (UTC)
    day: Mapped[int] = mapped_column(default=0)
    images: Mapped[int] = mapped_column(default=0)  # number of images sent on that day
    # time at which its bucket is full again, see core.requests.predict_keys
    free_at: Mapped[float] = mapped_column(default=0.0)


class UserSession(Table):
    """A person's session on the web pages; only the SHA-256 digest of its token is stored."""

    __tablename__ = "sessions"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), index=True)
    created_at: Mapped[float]
    seen_at: Mapped[float]  # time of its last request, updated every half minute
    expires_at: Mapped[float] = mapped_column(index=True)
