"""Usage of models and owners in rows and bytes. An owner's usage is stored in its row."""

from typing_extensions import TypedDict


class ModelBytes(TypedDict):
    """Bytes in the store.

    They comprise parts of versions, waiting archives, retained datasets with the versions' answers
    on them, and downloads.
    """

    versions: int
    archives: int
    datasets: int
    exports: int


class OwnerBytes(ModelBytes):
    """Sums over an owner's models, uploaded bases, and uploads that no task has used yet."""

    bases: int
    uploads: int


class ModelCounts(TypedDict):
    """Rows of a model; `jobs` counts them by state."""

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
    """The sums as they are stored; `at` is the time of measurement in seconds since 1970."""

    at: float


class ModelUsage(ModelCounts):
    """Usage of a model. A deleted model is listed until its files are removed.

    `jobs`: number of jobs by state.
    """

    model: str
    name: str
    owner: str
    deleted: bool


class OwnerUsage(OwnerSums):
    """Usage of an owner. `models` counts those that are not deleted; `jobs` counts by state."""

    owner: str
    measured_at: str
