"""What models and owners have, in rows and bytes; an owner's is stored in his row."""

from typing_extensions import TypedDict


class ModelBytes(TypedDict):
    """Bytes in the store: parts of versions, archives that wait, kept datasets with what versions answered on them, and
    downloads that were made.
    """

    versions: int
    archives: int
    datasets: int
    exports: int


class OwnerBytes(ModelBytes):
    """Sums over an owner's models, his uploaded bases, and his uploads that no task has taken yet."""

    bases: int
    uploads: int


class ModelCounts(TypedDict):
    """Rows of a model; `jobs` by state."""

    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: ModelBytes


class OwnerSums(TypedDict):
    """Sums over an owner's models; `models` counts those that are not deleted."""

    models: int
    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: OwnerBytes


class OwnerMeasured(OwnerSums):
    """The sums as they are stored; `at`: when they were measured, in seconds since 1970."""

    at: float


class ModelUsage(ModelCounts):
    """What a model has; a deleted one is listed until its files are swept. `jobs`: how many, by state."""

    model: str
    name: str
    owner: str
    deleted: bool


class OwnerUsage(OwnerSums):
    """What an owner has. `models` counts those that are not deleted; `jobs`: how many, by state."""

    owner: str
    measured_at: str
