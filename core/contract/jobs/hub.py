"""Messages between the worker and the process that downloads weights: one JSON object a line."""

from pathlib import Path
from typing import Literal

from core.contract.document import Document


class HubDownloadRequest(Document):
    """A request to download a file of a hub repository's newest commit.

    Attributes:
        repository: the repository's name.
        file: name of the file.
        folder: folder for the download.
        max_bytes: largest size of the file.
    """

    repository: str
    file: str
    folder: Path
    max_bytes: int


class HubDownloadStartedEvent(Document):
    """Event of the download process: the download of a file has begun.

    Attributes:
        path: the growing file.
        bytes: its final size.
    """

    event: Literal["begun"] = "begun"
    path: Path
    bytes: int


class HubDownloadCompletedEvent(Document):
    """Event of the download process: the file is complete and has the digest that the hub states.

    Attributes:
        path: the file.
        revision: the commit that it comes from.
    """

    event: Literal["downloaded"] = "downloaded"
    path: Path
    revision: str


class HubDownloadFailedEvent(Document):
    """Event of the download process: the download failed, and why.

    Attributes:
        kind: weights (another attempt alone does not help), disk (it is full) or code.
        detail: a sentence.
    """

    event: Literal["failed"] = "failed"
    kind: Literal["weights", "disk", "code"]
    detail: str
