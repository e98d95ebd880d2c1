"""Tolerance of a database outage while an upload holds a row there: the hold expires by itself."""

import contextlib
from collections.abc import Iterator

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.database.session import is_database_outage

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def suppress_database_outage(held: str) -> Iterator[None]:
    """Suppress a database outage within the block, so that the upload continues.

    Args:
        held: what was not renewed or released, for the log.
    """
    try:
        yield
    except SQLAlchemyError as error:
        if not is_database_outage(error):
            raise
        log.warning(f"{held} not renewed or freed", error=type(error).__name__)
