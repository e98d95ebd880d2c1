"""Who asks: the owner, the key and the scope of a request.

Every use-case takes an `Actor` and sees only its owner's objects; an administrator sees all. Whatever
belongs to somebody else does not exist for the caller (404, never 403).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, bindparam, literal_column, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from core import damage
from core.db.session import Database
from core.db.tables import Key, Model, Owner
from core.errors import NameAmbiguous, NotAuthenticated, NotFound, StoreCorrupt
from core.ids import is_id

Scope = Literal["scrape", "predict", "read", "write", "admin"]
COVERS: dict[str, frozenset[str]] = {
    "scrape": frozenset({"scrape"}),
    "predict": frozenset({"predict"}),
    "read": frozenset({"predict", "read"}),
    "write": frozenset({"predict", "read", "write"}),
    "admin": frozenset({"scrape", "predict", "read", "write", "admin"}),
}
"""Rights of the holder of a key of each scope. `scrape` opens the figures of the whole service, and nothing else;
`predict` asks one alias of one model (`Bound`), and nothing else."""

MOST = 20
"""Models of one name that a refusal lists."""
_OWNERS = (
    select(Model.owner_id)
    .where(Model.name == bindparam("name"), Model.deleted_at.is_(None))
    .order_by(Model.owner_id != bindparam("own"), Model.id)
    .limit(literal_column("2"))
)
"""Owners of models of a name, the caller first."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The one thing that a key of scope predict may ask: an alias of a model, by the model's id or present name."""

    model_id: str
    model_name: str
    alias: str

    def allows(self, model: str, version: str) -> bool:
        """Tell if a path names this model and this alias. A version's number never does, whatever the alias is on."""
        return model in (self.model_id, self.model_name) and version == self.alias


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller of a use-case; `key_id` is None when authentication is off.

    `called`: of somebody who has logged in, the names of key and owner, for pages to show.
    `bound`: what the key is bound to, of scope predict.
    """

    owner_id: str
    key_id: str | None
    scope: str
    called: tuple[str, str] | None = None
    bound: Bound | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the caller sees the objects of all owners."""
        return self.scope == "admin"

    def may(self, scope: str) -> bool:
        """Whether the key's scope covers `scope`."""
        return scope in COVERS.get(self.scope, ())

    def sees(self, owner_id: str) -> bool:
        """Whether objects of that owner exist for this caller."""
        return self.is_admin or owner_id == self.owner_id

    def filter(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """The condition that leaves only what this caller sees; `column` holds the owner's id."""
        return true() if self.is_admin else column == self.owner_id


def require_valid_key(session: Session, actor: Actor, now: float) -> None:
    """Refuse what a key has begun and that would be committed after the key has ended.

    Args:
        session: of the transaction that commits it.
        now: seconds since 1970 by the database's clock.

    Raises:
        NotAuthenticated: the key was revoked or has expired since the request came.
    """
    if actor.key_id is None:
        return
    row = session.execute(select(Key.revoked_at, Key.expires_at).where(Key.id == actor.key_id)).one_or_none()
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        raise NotAuthenticated(
            "The key was revoked or has expired while this request was under way: nothing of it was done."
        )


def find_model(session: Session, actor: Actor, model: str, *, lock: bool = False) -> Model:
    """The model of that id or name that the caller sees.

    A name is looked up among the caller's own models first; an administrator then sees the one of that name of any
    other owner.

    Args:
        lock: take the row for writing (PostgreSQL; SQLite's writers are alone anyway).

    Raises:
        NotFound: no such model, a deleted one, or another owner's.
        NameAmbiguous: several other owners have a model of that name.
    """
    query = select(Model).where(Model.deleted_at.is_(None), actor.filter(Model.owner_id))
    if is_id(model, "mdl"):
        query = query.where(Model.id == model)
    elif actor.is_admin and lock:
        # Only the row that is meant is locked.
        query = query.where(Model.name == model, Model.owner_id == _owner_meant(session, actor, model))
    else:
        query = query.where(Model.name == model).order_by(Model.owner_id != actor.owner_id, Model.id).limit(2)
    rows = session.scalars(query.with_for_update() if lock else query).all()
    if not rows:
        raise NotFound(f"There is no model {model!r}.")
    if len(rows) > 1 and rows[0].owner_id != actor.owner_id:
        raise _ambiguous(session, model)
    return rows[0]


def _owner_meant(session: Session, actor: Actor, name: str) -> str:
    """Whose model of that name an administrator means."""
    owners = session.connection().execute(_OWNERS, {"name": name, "own": actor.owner_id}).scalars().all()
    if len(owners) > 1 and owners[0] != actor.owner_id:
        raise _ambiguous(session, name)
    return owners[0] if owners else actor.owner_id


def _ambiguous(session: Session, name: str) -> NameAmbiguous:
    query = select(Model.id, Owner.name).join(Owner, Owner.id == Model.owner_id)
    query = query.where(Model.name == name, Model.deleted_at.is_(None)).order_by(Model.id).limit(MOST)
    models = [{"id": row[0], "owner": row[1]} for row in session.execute(query)]
    listed = ", ".join(f"{model['id']} of {model['owner']}" for model in models)
    return NameAmbiguous(
        f"Several owners have a model {name!r}: {listed}. Name the one you mean by its id.",
        extra={"models": models},
    )


@contextmanager
def files_of(db: Database, actor: Actor, model: str) -> Iterator[None]:
    """Around reading the files of a model: it may be deleted between its rows and its files.

    Raises:
        NotFound: in place of `StoreCorrupt`, when the model is gone by now.
        StoreCorrupt: otherwise it says which part of the model is damaged, and what to do.
    """
    try:
        yield
    except StoreCorrupt as error:
        with db.read() as session:
            raise damage.explained(session, find_model(session, actor, model).id, error) from error
