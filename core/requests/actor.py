"""The caller of a request: owner, key and scope.

Every use case takes an `Actor` and sees only objects of its owner; an administrator sees all
objects. An object of another owner is reported as missing (404), never as forbidden (403).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVarTuple

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.database.session import Database
from core.database.tables import AccessKey, Model, Owner
from core.errors import NameAmbiguous, NotAuthenticated, NotFound, StoredObjectDamaged
from core.ids import is_id
from core.retention import damage

Others = TypeVarTuple("Others")
Scope = Literal["scrape", "predict", "read", "write", "admin"]
# Only admin also covers scrape, since the metrics are those of all owners.
COVERS: dict[str, frozenset[str]] = {
    "scrape": frozenset({"scrape"}),
    "predict": frozenset({"predict"}),
    "read": frozenset({"predict", "read"}),
    "write": frozenset({"predict", "read", "write"}),
    "admin": frozenset({"scrape", "predict", "read", "write", "admin"}),
}
"""Scopes that a key of each scope covers.

`scrape` opens the metrics of the whole service and nothing else. `predict` opens one alias of one
model (see `PredictKeyBinding`) and nothing else.
"""

MOST = 20
"""Maximum number of models of one name that a refusal lists."""
# Two rows are enough to tell a unique name from an ambiguous one.
_OWNERS = (
    select(Model.owner_id)
    .where(Model.name == bindparam("name"), Model.deleted_at.is_(None))
    .order_by(Model.owner_id != bindparam("own"), Model.id)
    .limit(literal_column("2"))
)
"""Query for the owners of models of a given name, the caller first."""


@dataclass(frozen=True, slots=True)
class PredictKeyBinding:
    """Model and alias that a key of scope predict is bound to.

    The model can be addressed by its id or by its present name.
    """

    model_id: str
    model_name: str
    alias: str

    def allows_model_and_alias(self, model: str, version: str) -> bool:
        """Return True if a request's path names the model and alias that the key is bound to.

        A version number never matches, even when the alias points to that version.
        """
        return model in (self.model_id, self.model_name) and version == self.alias


@dataclass(frozen=True, slots=True)
class Actor:
    """Authenticated caller of a use case: owner, key and scope.

    Attributes:
        owner_id: id of the owner whose objects the caller sees.
        key_id: id of the key; None when authentication is off.
        scope: one of `COVERS`.
        called: names of the key and the owner of a logged-in person, for pages to show.
        bound: model and alias that a key of scope predict is limited to.
    """

    owner_id: str
    key_id: str | None
    scope: str
    called: tuple[str, str] | None = None
    bound: PredictKeyBinding | None = None

    @property
    def is_admin(self) -> bool:
        """Return True if the caller sees the objects of all owners."""
        return self.scope == "admin"

    def has_scope(self, scope: str) -> bool:
        """Return True if the caller's key has at least the given scope."""
        return scope in COVERS.get(self.scope, ())

    def can_see(self, owner_id: str) -> bool:
        """Return True if the caller may see objects of that owner."""
        return self.is_admin or owner_id == self.owner_id

    def build_visible_condition(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """Return the SQL condition that selects only rows that the caller may see.

        Args:
            column: column that holds the owner's id.
        """
        return true() if self.is_admin else column == self.owner_id


@dataclass(frozen=True, slots=True)
class UseCaseTransaction:
    """Database transaction of a use case, which commits only if the caller's key is still valid.

    Attributes:
        session: its session.
        actor: the caller, who is the author of its changes.
        now: seconds since 1970 by the database's clock.
    """

    session: Session
    actor: Actor
    now: float


def build_valid_key_condition(key_id: str, now: float) -> ColumnElement[bool]:
    """Build the SQL condition that an access key has this id and is neither revoked nor expired.

    Args:
        now: seconds since 1970 by the database's clock.
    """
    has_time = or_(AccessKey.expires_at.is_(None), AccessKey.expires_at > now)
    return and_(AccessKey.id == key_id, AccessKey.revoked_at.is_(None), has_time)


def require_caller_key_still_valid(session: Session, actor: Actor, now: float) -> None:
    """Raise an error before the commit if the caller's key was revoked or has expired since the
    request began.

    Args:
        session: session of the transaction that commits the change.
        now: seconds since 1970 by the database's clock.

    Raises:
        NotAuthenticated: the key was revoked or has expired since the request came.
    """
    # Without authentication there is no key that could have ended.
    if actor.key_id is None:
        return
    if (
        session.scalar(select(AccessKey.id).where(build_valid_key_condition(actor.key_id, now)))
        is None
    ):
        raise make_access_key_expired_error()


def make_access_key_expired_error() -> NotAuthenticated:
    """Return the error for an access key that expired or was revoked during its request."""
    return NotAuthenticated(
        "The key was revoked or has expired while this request was under way: nothing of it "
        "was done."
    )


def find_model(session: Session, actor: Actor, model: str, *, lock: bool = False) -> Model:
    """Return a model by id or name, if the caller sees it.

    A name is looked up among the caller's own models first. An administrator then gets the model of
    that name of any other owner.

    Args:
        lock: lock the row for writing on PostgreSQL; SQLite has only one writer at a time anyway.

    Raises:
        NotFound: there is no such model, it was deleted, or it belongs to another owner.
        NameAmbiguous: several other owners have a model of that name.
    """
    query = select(Model)
    return read_query_row_for_model(session, actor, model, query, lock=lock)[0]


def read_query_row_for_model(
    session: Session, actor: Actor, model: str, query: Select[Model, *Others], *, lock: bool = False
) -> Row[Model, *Others]:
    """Return a query's row for the model of that id or name; see `find_model`.

    Args:
        query: selects `Model` first, and then whatever else is read of it with the same statement.
    """
    query = query.where(Model.deleted_at.is_(None), actor.build_visible_condition(Model.owner_id))
    # No name has the form of an id (`core.ids.is_allowed_model_or_alias_name`), so the form
    # decides which of them it is.
    if is_id(model, "mdl"):
        query = query.where(Model.id == model)
    elif actor.is_admin and lock:
        # The owner is resolved first, so that only the row of the intended model is locked.
        query = query.where(
            Model.name == model,
            Model.owner_id == _find_owner_id_of_named_model(session, actor, model),
        )
    else:
        query = (
            query.where(Model.name == model)
            .order_by(Model.owner_id != actor.owner_id, Model.id)
            .limit(2)
        )
    rows = session.execute(query.with_for_update(of=Model) if lock else query).all()
    if not rows:
        raise NotFound(f"There is no model {model!r}.")
    if len(rows) > 1 and rows[0][0].owner_id != actor.owner_id:
        raise _make_ambiguous_model_name_error(session, model)
    return rows[0]


def _find_owner_id_of_named_model(session: Session, actor: Actor, name: str) -> str:
    """Return the owner of the model that an administrator means by a name.

    Raises:
        NameAmbiguous: several other owners have a model of that name.
    """
    owners = (
        session.connection().execute(_OWNERS, {"name": name, "own": actor.owner_id}).scalars().all()
    )
    if len(owners) > 1 and owners[0] != actor.owner_id:
        raise _make_ambiguous_model_name_error(session, name)
    # Without such a model any owner does, since the caller then finds none.
    return owners[0] if owners else actor.owner_id


def _make_ambiguous_model_name_error(session: Session, name: str) -> NameAmbiguous:
    """Return the error for a model name that several owners have; it lists the models."""
    query = select(Model.id, Owner.name).join(Owner, Owner.id == Model.owner_id)
    query = (
        query.where(Model.name == name, Model.deleted_at.is_(None)).order_by(Model.id).limit(MOST)
    )
    models = [{"id": row[0], "owner": row[1]} for row in session.execute(query)]
    listed = ", ".join(f"{model['id']} of {model['owner']}" for model in models)
    return NameAmbiguous(
        f"Several owners have a model {name!r}: {listed}. Name the one you mean by its id.",
        extra={"models": models},
    )


@contextmanager
def translate_deleted_file_errors(db: Database, actor: Actor, model: str) -> Iterator[None]:
    """Convert errors of code that reads a model's files, if these are deleted meanwhile.

    Raises:
        NotFound: raised in place of `StoredObjectDamaged` if the model has been deleted meanwhile.
        StoredObjectDamaged: otherwise; the message says which part of the model is damaged and what to do.
    """
    try:
        yield
    except StoredObjectDamaged as error:
        # The model is looked up first: if it was deleted, its missing files are no damage.
        with db.read() as session:
            raise damage.reword_damaged_object_error(
                session, find_model(session, actor, model).id, error
            ) from error


def require_visible_model(db: Database, actor: Actor, model: str) -> None:
    """Check that the model exists and that the caller sees it.

    Raises:
        NotFound: there is no such model.
    """
    with db.read() as session:
        find_model(session, actor, model)
