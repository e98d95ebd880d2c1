"""The report of `worker.setup` to the launcher, which imports nothing but the standard library."""

from typing import TypedDict


class PreparedServiceSettings(TypedDict):
    """Settings of the prepared service that the launcher needs, such as its address and data
    folder.

    Attributes:
        embedded: True if the worker needs no broker.
        admin_key: the key's text on the first start, otherwise None.
    """

    host: str
    port: int
    embedded: bool
    grace_s: float
    data_dir: str
    auth: str
    admin_key: str | None
