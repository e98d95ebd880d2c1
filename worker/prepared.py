"""What `worker.setup` tells the launcher, which imports nothing but the standard library."""

from typing import TypedDict


class Prepared(TypedDict):
    """Where the service is to listen, seconds of grace for a job, and what it is made of.

    `embedded`: the worker needs no broker. `admin_key`: the secret on the first start, otherwise None.
    """

    host: str
    port: int
    embedded: bool
    grace_s: float
    data_dir: str
    auth: str
    admin_key: str | None
