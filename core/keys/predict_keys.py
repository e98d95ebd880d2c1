"""Keys of scope `predict`: one alias of one model, a request rate, and images per day.

Such a key may be part of a web page that everybody can read. It therefore expires, and its use is
counted in the database, across all API processes and their restarts. A bucket of requests is stored
as the time at which it will be full again (`free_at`, as in the generic cell rate algorithm). The
images of a day are stored as a number beside the day. One statement checks and takes both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, or_, select, update
from sqlalchemy.orm import Session

from core.contract.responses.key import KeyBound
from core.database.session import Database
from core.database.tables import AccessKey, Model, Owner, PredictKeyBindingRow
from core.errors import Invalid, NotFound, TooManyRequests
from core.requests.actor import Actor, find_model
from core.versions.versions import find_version

BURST_S = 2.0
"""Size of the bucket: requests of this many seconds may come at once."""
DAY_S = 86_400
REQUESTS_PER_S = 5.0
MOST_REQUESTS_PER_S = 100.0
LEAST_REQUESTS_PER_S = 0.01
IMAGES_PER_DAY = 1000
MOST_IMAGES_PER_DAY = 1_000_000
MOST_DAYS = 366
"""Maximum lifetime of a key in days."""


@dataclass(frozen=True)
class RequestedKeyModelAndLimits:
    """Model, alias and limits that a request gives for a new key of scope predict.

    Attributes:
        model: id or name.
        alias: an alias such as production; never a version number.
        requests_per_s: allowed requests per second; None for `REQUESTS_PER_S`.
        images_per_day: allowed images from midnight to midnight (UTC); None for `IMAGES_PER_DAY`.
    """

    model: str | None = None
    alias: str | None = None
    requests_per_s: float | None = None
    images_per_day: int | None = None


NOTHING = RequestedKeyModelAndLimits()


def check_requested_key_settings(
    scope: str, requested: RequestedKeyModelAndLimits, expires: float | None, now: float
) -> None:
    """Check the requested settings of a new access key.

    Raises:
        Invalid: a key of another scope names a model, an alias or a limit; or a key of scope
            predict lacks a model, an alias or an expiry, expires too late, or has a limit out of
            range.
    """
    if scope != "predict":
        field_names = [name for name, value in vars(requested).items() if value is not None]
        if field_names:
            detail = (
                f"{', '.join(field_names)}: only a key of scope predict has these, not one of "
                f"{scope}."
            )
            raise Invalid(
                detail,
                fields=[
                    {"field": name, "message": "only of scope predict"} for name in field_names
                ],
            )
        return
    missing = [name for name in ("model", "alias") if not getattr(requested, name)]
    if missing:
        raise Invalid(
            "A key of scope predict asks one alias of one model: name both, such as"
            ' {"model": "birds", "alias": "production"}.',
            fields=[{"field": name, "message": "is missing"} for name in missing],
        )
    if expires is None or expires > now + MOST_DAYS * DAY_S:
        raise _make_key_settings_error(
            f"A key of scope predict must expire, after {MOST_DAYS} days at the latest, since "
            "everybody who has the page that it stands in has the key: give expires_at.",
            "expires_at",
            f"is required, within {MOST_DAYS} days",
        )
    rate, images = requested.requests_per_s, requested.images_per_day
    if rate is not None and not LEAST_REQUESTS_PER_S <= rate <= MOST_REQUESTS_PER_S:
        possible = f"{LEAST_REQUESTS_PER_S:g} to {MOST_REQUESTS_PER_S:g}"
        raise _make_key_settings_error(
            f"requests_per_s is {rate:g}; {possible} are possible.", "requests_per_s", possible
        )
    if images is not None and not 1 <= images <= MOST_IMAGES_PER_DAY:
        possible = f"1 to {MOST_IMAGES_PER_DAY}"
        raise _make_key_settings_error(
            f"images_per_day is {images}; {possible} are possible.", "images_per_day", possible
        )


def find_model_of_new_predict_key(
    session: Session,
    actor: Actor,
    owner: str | None,
    requested: RequestedKeyModelAndLimits,
) -> tuple[Owner, Model]:
    """Return the model that a new predict key is for, and the model's owner, who will also own the
    key.

    Args:
        owner: name of the owner whose models are searched by name; None to search like
            `find_model`.

    Raises:
        Invalid: there is no such owner, model or alias.
        NameAmbiguous: several owners have a model of that name, and no owner is given.
    """
    assert requested.model is not None and requested.alias is not None
    if owner is not None:
        owner_row = session.scalars(select(Owner).where(Owner.name == owner)).first()
        if owner_row is None:
            raise _make_key_settings_error(
                f"There is no owner {owner!r}, so it has no model to ask.", "owner", "no such owner"
            )
        # In place of that owner, so that the name is looked up among its models alone.
        actor = Actor(owner_row.id, None, "read")
    try:
        model = find_model(session, actor, requested.model)
    except NotFound as error:
        raise _make_key_settings_error(error.detail, "model", "no such model") from None
    try:
        # `Bound.allows_alias` never matches a number, so the key would open nothing.
        if requested.alias.isdigit():
            raise NotFound(
                f"{requested.alias!r} is the number of a version: name an alias, such as production."
            )
        find_version(session, model, requested.alias)
    except NotFound as error:
        raise _make_key_settings_error(error.detail, "alias", "no such alias") from None
    # The model's owner, who is another one if an administrator creates the key.
    return session.get_one(Owner, model.owner_id), model


def bind_predict_key(
    session: Session, key: AccessKey, model: Model, requested: RequestedKeyModelAndLimits
) -> PredictKeyBindingRow:
    """Add the row that binds a new access key to its model, alias and limits."""
    row = PredictKeyBindingRow(
        key_id=key.id,
        model_id=model.id,
        alias=requested.alias,
        requests_per_s=REQUESTS_PER_S
        if requested.requests_per_s is None
        else requested.requests_per_s,
        images_per_day=IMAGES_PER_DAY
        if requested.images_per_day is None
        else requested.images_per_day,
        day=0,
        images=0,
        free_at=0.0,
    )
    session.add(row)
    return row


def find_models_bound_to_predict_scope_keys(
    session: Session, key_ids: Sequence[str], now: float
) -> dict[str, KeyBound]:
    """Return by key id the model, alias and limits that keys of scope predict are bound to."""
    query = select(PredictKeyBindingRow, Model.name).join(
        Model, Model.id == PredictKeyBindingRow.model_id
    )
    rows = session.execute(query.where(PredictKeyBindingRow.key_id.in_(key_ids))).all()
    return {
        row.PredictKeyBindingRow.key_id: build_key_model_and_limits_response(
            row.PredictKeyBindingRow, row.name, now
        )
        for row in rows
    }


def build_key_model_and_limits_response(
    row: PredictKeyBindingRow, model: str, now: float
) -> KeyBound:
    """Return a predict key's model, alias and limits as responses show them.

    Args:
        model: name of the model.
    """
    return {
        "model": model,
        "model_id": row.model_id,
        "alias": row.alias,
        "requests_per_s": row.requests_per_s,
        "images_per_day": row.images_per_day,
        # The number belongs to the day of the last request, which may be over.
        "images_today": row.images if row.day == now // DAY_S else 0,
    }


def rebind_predict_keys_to_model(session: Session, goes: Model, comes: Model) -> None:
    """Bind the predict keys of one model to another that takes over its name.

    Web pages that use these keys thus keep working.

    Args:
        goes: model that loses the name.
        comes: model that gets the name.
    """
    session.execute(
        update(PredictKeyBindingRow)
        .where(PredictKeyBindingRow.model_id == goes.id)
        .values(model_id=comes.id)
    )


def charge_predict_key_daily_images(
    db: Database, key_id: str, images: int, *, is_request: bool
) -> None:
    """Subtract images from a predict key's daily allowance, and one request if a request begins.

    Raises:
        TooManyRequests: the limit is reached; nothing was taken, and `retry_after_s` says when to
            try again.
    """
    with db.write() as session:
        now = db.now(session)
        day = int(now // DAY_S)
        images_sent_today = case(
            (PredictKeyBindingRow.day == day, PredictKeyBindingRow.images), else_=0
        )
        statement = update(PredictKeyBindingRow).where(
            PredictKeyBindingRow.key_id == key_id,
            images_sent_today + images <= PredictKeyBindingRow.images_per_day,
        )
        values = {"day": day, "images": images_sent_today + images}
        if is_request:
            each = 1.0 / PredictKeyBindingRow.requests_per_s
            # Later than a full bucket allows: the clock was set back.
            is_stale = PredictKeyBindingRow.free_at > now + BURST_S + each
            # The bucket of a slow key holds one request, although that takes longer than `BURST_S`.
            fits = PredictKeyBindingRow.free_at <= case(
                (each < BURST_S, now + BURST_S - each), else_=now
            )
            statement = statement.where(or_(is_stale, fits))
            from_now = or_(is_stale, PredictKeyBindingRow.free_at < now)
            values["free_at"] = case((from_now, now), else_=PredictKeyBindingRow.free_at) + each
        if session.connection().execute(statement.values(values)).rowcount:
            return
        # Only a refusal reads the row, to name the limit and the time to wait.
        row = session.get(PredictKeyBindingRow, key_id)
        raise _make_predict_key_limit_error(row, images, now, day)


def _make_predict_key_limit_error(
    row: PredictKeyBindingRow | None, images: int, now: float, day: int
) -> TooManyRequests:
    """Return the error that says which limit a predict key has reached."""
    images_sent_today = row.images if row is not None and row.day == day else 0
    if row is not None and images_sent_today + images > row.images_per_day:
        return TooManyRequests(
            f"This key may send {row.images_per_day} images a day, and has sent {images_sent_today} since "
            f"midnight (UTC): {images} more are too many. Ask the person who gave it to you for a "
            f"key with a higher limit, or wait.",
            retry_after_s=max(1, math.ceil((day + 1) * DAY_S - now)),
        )
    per_s = REQUESTS_PER_S if row is None else row.requests_per_s
    wait = 1.0 if row is None else row.free_at - now - max(0.0, BURST_S - 1.0 / per_s)
    return TooManyRequests(
        f"This key may make {per_s:g} requests a second: wait, then ask less often.",
        retry_after_s=max(1, math.ceil(wait)),
    )


def _make_key_settings_error(detail: str, field: str, message: str) -> Invalid:
    return Invalid(detail, fields=[{"field": field, "message": message}])
