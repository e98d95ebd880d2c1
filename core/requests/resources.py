"""Resources of use cases that read or write files and resolve recipes."""

from dataclasses import dataclass

from core.db.session import Database
from core.protocol.catalogue import Catalogue
from core.store import Blobs


@dataclass(frozen=True, slots=True)
class Resources:
    """Database, blobs, and catalogue of methods and architectures."""

    db: Database
    blobs: Blobs
    catalogue: Catalogue
