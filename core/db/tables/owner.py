"""Tenants, the keys by which they are known, and who has logged in with one."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import JSON_COLUMN, Table
from core.protocol.usage import OwnerMeasured


class Owner(Table):
    """A tenant: sees only what is its own."""

    __tablename__ = "owners"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    bytes: Mapped[int | None]  # in the store, see core.db.stored_bytes
    bytes_at: Mapped[float | None]  # when they were measured
    usage: Mapped[OwnerMeasured | None] = mapped_column(JSON_COLUMN)  # rows and bytes, see core.db.usage
    usage_at: Mapped[float | None]  # when a worker last began to measure it
    claimed_at: Mapped[float | None]  # when a worker last claimed one of his jobs, see core.work.turns
    overtook: Mapped[bool] = mapped_column(default=False)  # that job was claimed before an older one of his
    created_at: Mapped[float]


class Key(Table):
    """An access key; only the sha256 of its secret is kept."""

    __tablename__ = "keys"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)  # public part of the secret
    hash: Mapped[str] = mapped_column(String(64))
    scope: Mapped[str] = mapped_column(String(8))  # scrape, predict, read, write, admin
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    created_at: Mapped[float]


class PredictKey(Table):
    """Of a key of scope predict: the alias that it asks, its limits, and what it has taken of them."""

    __tablename__ = "predict_keys"
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    alias: Mapped[str] = mapped_column(String(63))
    requests_per_s: Mapped[float]
    images_per_day: Mapped[int]
    day: Mapped[int] = mapped_column(default=0)  # of its last request, counted since 1970 (UTC)
    images: Mapped[int] = mapped_column(default=0)  # that it has sent on that day
    free_at: Mapped[float] = mapped_column(
        default=0.0
    )  # when its bucket is full again, see core.requests.predict_keys


class UserSession(Table):
    """Somebody who logged in to the pages with a key; only the sha256 of its token is kept."""

    __tablename__ = "sessions"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("keys.id"), index=True)
    created_at: Mapped[float]
    seen_at: Mapped[float]  # of its last request, written down every half minute
    expires_at: Mapped[float] = mapped_column(index=True)
