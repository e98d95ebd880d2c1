"""Parts of the service that use cases with several stores work with."""

from dataclasses import dataclass

from core.db.session import Database
from core.protocol.catalogue import Catalogue
from core.store import Blobs


@dataclass(frozen=True, slots=True)
class Service:
    """Database, blobs, and catalogue of methods and architectures."""

    db: Database
    blobs: Blobs
    catalogue: Catalogue
