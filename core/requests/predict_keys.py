"""Keys of scope `predict`: each asks one alias of one model, a few times a second, and so many images a day.

Such a key may stand in a web page, where everybody reads it. So it ends by itself, and what it has taken is counted in
the database: of all API processes together, and across their restarts. A bucket of requests is one time, that at which
it will be full again (`free_at`, as in the generic cell rate algorithm); the images of a day are a number beside the
day. One statement checks and takes both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, or_, select, update
from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Key, Model, Owner, PredictKey
from core.errors import Invalid, NotFound, TooManyRequests
from core.protocol.answers.key import KeyBound
from core.requests.actor import Actor, find_model
from core.requests.versions import find_version

BURST_S = 2.0
"""Requests of so many seconds may come at once."""
DAY_S = 86_400
REQUESTS_PER_S = 5.0
MOST_REQUESTS_PER_S = 100.0
LEAST_REQUESTS_PER_S = 0.01
IMAGES_PER_DAY = 1000
MOST_IMAGES_PER_DAY = 1_000_000
MOST_DAYS = 366
"""A key ends after so many days at the latest."""


@dataclass(frozen=True)
class Wanted:
    """Limits that a new key of scope predict is to have.

    Attributes:
        model: id or name.
        alias: such as production; never the number of a version.
        requests_per_s: that it may make; None: `REQUESTS_PER_S`.
        images_per_day: that it may send from midnight to midnight (UTC); None: `IMAGES_PER_DAY`.
    """

    model: str | None = None
    alias: str | None = None
    requests_per_s: float | None = None
    images_per_day: int | None = None


NOTHING = Wanted()


def check(scope: str, wanted: Wanted, expires: float | None, now: float) -> None:
    """Refuse what a key of a scope cannot have.

    Raises:
        Invalid: one of another scope that names a model, an alias or a limit; or one of scope predict that names no
            model, no alias or no expiry, one that is too late, or a limit out of its range.
    """
    if scope != "predict":
        given = [name for name, value in vars(wanted).items() if value is not None]
        if given:
            detail = f"{', '.join(given)}: only a key of scope predict has these, not one of {scope}."
            raise Invalid(
                detail, fields=[{"field": name, "message": "only of scope predict"} for name in given]
            )
        return
    missing = [name for name in ("model", "alias") if not getattr(wanted, name)]
    if missing:
        raise Invalid(
            "A key of scope predict asks one alias of one model: name both, such as"
            ' {"model": "birds", "alias": "production"}.',
            fields=[{"field": name, "message": "is missing"} for name in missing],
        )
    if expires is None or expires > now + MOST_DAYS * DAY_S:
        raise _invalid(
            f"A key of scope predict must expire, after {MOST_DAYS} days at the latest, since everybody who has the"
            " page that it stands in has the key: give expires_at.",
            "expires_at",
            f"is required, within {MOST_DAYS} days",
        )
    rate, images = wanted.requests_per_s, wanted.images_per_day
    if rate is not None and not LEAST_REQUESTS_PER_S <= rate <= MOST_REQUESTS_PER_S:
        possible = f"{LEAST_REQUESTS_PER_S:g} to {MOST_REQUESTS_PER_S:g}"
        raise _invalid(f"requests_per_s is {rate:g}; {possible} are possible.", "requests_per_s", possible)
    if images is not None and not 1 <= images <= MOST_IMAGES_PER_DAY:
        possible = f"1 to {MOST_IMAGES_PER_DAY}"
        raise _invalid(f"images_per_day is {images}; {possible} are possible.", "images_per_day", possible)


def find_bound(session: Session, actor: Actor, owner: str | None, wanted: Wanted) -> tuple[Owner, Model]:
    """The model that a new key is to ask, and its owner, whose the key will be.

    Args:
        owner: name of the owner among whose models a name is looked up; None: as `find_model` does it.

    Raises:
        Invalid: there is no such owner, model or alias.
        NameAmbiguous: several owners have a model of that name, and none is named.
    """
    assert wanted.model is not None and wanted.alias is not None
    if owner is not None:
        found = session.scalars(select(Owner).where(Owner.name == owner)).first()
        if found is None:
            raise _invalid(
                f"There is no owner {owner!r}, so it has no model to ask.", "owner", "no such owner"
            )
        actor = Actor(found.id, None, "read")
    try:
        model = find_model(session, actor, wanted.model)
    except NotFound as error:
        raise _invalid(error.detail, "model", "no such model") from None
    try:
        if wanted.alias.isdigit():
            raise NotFound(f"{wanted.alias!r} is the number of a version: name an alias, such as production.")
        find_version(session, model, wanted.alias)
    except NotFound as error:
        raise _invalid(error.detail, "alias", "no such alias") from None
    return session.get_one(Owner, model.owner_id), model


def bind(session: Session, key: Key, model: Model, wanted: Wanted) -> PredictKey:
    """Write down what a new key asks."""
    row = PredictKey(
        key_id=key.id,
        model_id=model.id,
        alias=wanted.alias,
        requests_per_s=REQUESTS_PER_S if wanted.requests_per_s is None else wanted.requests_per_s,
        images_per_day=IMAGES_PER_DAY if wanted.images_per_day is None else wanted.images_per_day,
        day=0,
        images=0,
        free_at=0.0,
    )
    session.add(row)
    return row


def bounds(session: Session, key_ids: Sequence[str], now: float) -> dict[str, KeyBound]:
    """By their ids, what those of some keys are bound to that are of scope predict."""
    query = select(PredictKey, Model.name).join(Model, Model.id == PredictKey.model_id)
    rows = session.execute(query.where(PredictKey.key_id.in_(key_ids))).all()
    return {row.PredictKey.key_id: shown(row.PredictKey, row.name, now) for row in rows}


def shown(row: PredictKey, model: str, now: float) -> KeyBound:
    """Return what a key is bound to, as answers show it; `model`: the model's name."""
    return {
        "model": model,
        "model_id": row.model_id,
        "alias": row.alias,
        "requests_per_s": row.requests_per_s,
        "images_per_day": row.images_per_day,
        "images_today": row.images if row.day == now // DAY_S else 0,
    }


def follow_name(session: Session, goes: Model, comes: Model) -> None:
    """Let the keys of a model ask the one that takes its name: pages that name it go on."""
    session.execute(update(PredictKey).where(PredictKey.model_id == goes.id).values(model_id=comes.id))


def take(db: Database, key_id: str, images: int, *, is_request: bool) -> None:
    """Take images of a key's day, and a request of its bucket where one begins.

    Raises:
        TooManyRequests: there are not so many left; nothing was taken, and `retry_after_s` says when there are.
    """
    with db.write() as session:
        now = db.now(session)
        day = int(now // DAY_S)
        sent = case((PredictKey.day == day, PredictKey.images), else_=0)
        statement = update(PredictKey).where(
            PredictKey.key_id == key_id, sent + images <= PredictKey.images_per_day
        )
        values = {"day": day, "images": sent + images}
        if is_request:
            each = 1.0 / PredictKey.requests_per_s
            # More than a full bucket can be: the clock was set back.
            is_stale = PredictKey.free_at > now + BURST_S + each
            fits = PredictKey.free_at <= case((each < BURST_S, now + BURST_S - each), else_=now)
            statement = statement.where(or_(is_stale, fits))
            from_now = or_(is_stale, PredictKey.free_at < now)
            values["free_at"] = case((from_now, now), else_=PredictKey.free_at) + each
        if session.connection().execute(statement.values(values)).rowcount:
            return
        row = session.get(PredictKey, key_id)
        raise _refusal(row, images, now, day)


def _refusal(row: PredictKey | None, images: int, now: float, day: int) -> TooManyRequests:
    """Return the error that says why a key gets no more for now."""
    sent = row.images if row is not None and row.day == day else 0
    if row is not None and sent + images > row.images_per_day:
        return TooManyRequests(
            f"This key may send {row.images_per_day} images a day, and has sent {sent} since midnight (UTC):"
            f" {images} more are too many. Ask the person who gave it to you for a key with a higher limit, or wait.",
            retry_after_s=max(1, math.ceil((day + 1) * DAY_S - now)),
        )
    per_s = REQUESTS_PER_S if row is None else row.requests_per_s
    wait = 1.0 if row is None else row.free_at - now - max(0.0, BURST_S - 1.0 / per_s)
    return TooManyRequests(
        f"This key may make {per_s:g} requests a second: wait, then ask less often.",
        retry_after_s=max(1, math.ceil(wait)),
    )


def _invalid(detail: str, field: str, message: str) -> Invalid:
    return Invalid(detail, fields=[{"field": field, "message": message}])
