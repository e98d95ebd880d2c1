"""Resources of use cases that read or write files and resolve recipes."""

from dataclasses import dataclass

from core.contract.catalogue import RecipeCatalogue
from core.database.session import Database
from core.storage import Blobs


@dataclass(frozen=True, slots=True)
class UseCaseResources:
    """Resources that use cases share: database, blobs, and catalogue of methods and architectures."""

    db: Database
    blobs: Blobs
    catalogue: RecipeCatalogue
