"""The event stream by which an open page learns that it shows an old state."""

from anyio import from_thread
from fastapi import Request

from core.database.polling import OwnerEventFilter, PollingDatabaseReads
from core.requests.actor import Actor
from core.requests.pages import encode_page_cursor


def read_newest_event_cursor(request: Request, actor: Actor) -> str:
    """Return the cursor of the caller's newest event, from which a page's event stream goes on.

    Call it in a worker thread and before reading what the page shows: a change between the two is
    then in the stream, and the page is shown again. Raises Unavailable without a database.
    """
    reads: PollingDatabaseReads = request.app.state.polling
    about = OwnerEventFilter(owner_id=None if actor.is_admin else actor.owner_id)
    return encode_page_cursor(from_thread.run(reads.read_newest_owner_event_id, about))
