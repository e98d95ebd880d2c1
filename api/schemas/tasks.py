"""Bodies of requests about tasks."""

from api.schemas.common import Body, Reason


class Settle(Body):
    """Why a task is passed over or discarded."""

    reason: Reason | None = None
