"""An outage of the database while an upload holds something in it: what is held is free again by itself."""

import contextlib
from collections.abc import Iterator

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.db.session import is_outage

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def outlasted(held: str) -> Iterator[None]:
    """An outage within the block does not end the upload. `held`: what is not renewed or freed now, for the log."""
    try:
        yield
    except SQLAlchemyError as error:
        if not is_outage(error):
            raise
        log.warning(f"{held} not renewed or freed", error=type(error).__name__)
