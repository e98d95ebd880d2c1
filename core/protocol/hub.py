"""What the worker and the process that downloads weights say to each other: one JSON object a line."""

from pathlib import Path
from typing import Literal

from core.protocol.document import Document


class DownloadAsked(Document):
    """Download the file of that name of a repository's newest commit, of at most `max_bytes`, into
    `folder`."""

    repository: str
    file: str
    folder: Path
    max_bytes: int


class DownloadBegun(Document):
    """The file that grows, and the bytes that it will have."""

    event: Literal["begun"] = "begun"
    path: Path
    bytes: int


class Downloaded(Document):
    """The file is whole and has the digest that the Hub names. revision: the commit that it is from."""

    event: Literal["downloaded"] = "downloaded"
    path: Path
    revision: str


class DownloadFailed(Document):
    """`kind`: weights (another attempt changes nothing by itself), disk (it is full) or code; `detail`: a
    sentence."""

    event: Literal["failed"] = "failed"
    kind: Literal["weights", "disk", "code"]
    detail: str
