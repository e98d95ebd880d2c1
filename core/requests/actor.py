"""Who asks: the owner, the key and the scope of a request.

Every use-case takes an `Actor` and sees only its owner's objects; an administrator sees all. Whatever
belongs to somebody else does not exist for the caller (404, never 403).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.db.session import Database
from core.db.tables import Model
from core.errors import NotFound, StoreCorrupt
from core.ids import is_id

Scope = Literal["read", "write", "admin"]
RANKS: dict[str, int] = {"read": 0, "write": 1, "admin": 2}
"""A scope includes those below it."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller of a use-case; `key_id` is None when authentication is off."""

    owner_id: str
    key_id: str | None
    scope: str

    @property
    def is_admin(self) -> bool:
        return self.scope == "admin"

    def may(self, scope: str) -> bool:
        """Whether the key's scope covers `scope`."""
        return RANKS.get(self.scope, -1) >= RANKS[scope]

    def sees(self, owner_id: str) -> bool:
        """Whether objects of that owner exist for this caller."""
        return self.is_admin or owner_id == self.owner_id

    def filter(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """The condition that leaves only what this caller sees; `column` holds the owner's id."""
        return true() if self.is_admin else column == self.owner_id


def find_model(session: Session, actor: Actor, model: str, *, lock: bool = False) -> Model:
    """The model of that id or name that the caller sees.

    A name is looked up among the caller's own models first; an administrator then sees the oldest of that
    name of any owner.

    Args:
        lock: take the row for writing (PostgreSQL; SQLite's writers are alone anyway).

    Raises:
        NotFound: no such model, a deleted one, or another owner's.
    """
    query = select(Model).where(Model.deleted_at.is_(None), actor.filter(Model.owner_id))
    if is_id(model, "mdl"):
        query = query.where(Model.id == model)
    else:
        query = query.where(Model.name == model)
        query = query.order_by((Model.owner_id != actor.owner_id), Model.id).limit(1)
    row = session.scalars(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFound(f"There is no model {model!r}.")
    return row


@contextmanager
def files_of(db: Database, actor: Actor, model: str) -> Iterator[None]:
    """Around reading the files of a model: it may be deleted between its rows and its files.

    Raises:
        NotFound: in place of `StoreCorrupt`, when the model is gone by now.
    """
    try:
        yield
    except StoreCorrupt:
        with db.read() as session:
            find_model(session, actor, model)
        raise
