"""Usage of models and owners in rows and bytes. An owner's usage is stored in its row."""

from typing_extensions import TypedDict


class ModelBytes(TypedDict):
    """Bytes that a model takes in the store, by kind of data.

    They comprise parts of versions, waiting archives, retained datasets with the versions' answers
    on them, and downloads.
    """

    versions: int
    archives: int
    datasets: int
    exports: int


class OwnerBytes(ModelBytes):
    """Bytes that an owner takes in the store: models, uploaded bases, and uploads that no task has
    used yet.
    """

    bases: int
    uploads: int


class ModelUsageCounts(TypedDict):
    """Numbers of a model's tasks, versions and jobs; `jobs` counts them by state."""

    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: ModelBytes


class OwnerUsageSums(TypedDict):
    """Usage of an owner, summed over models; `models` counts those that are not deleted."""

    models: int
    tasks: int
    versions: int
    jobs: dict[str, int]
    bytes: OwnerBytes


class StoredOwnerUsage(OwnerUsageSums):
    """An owner's usage as it is stored; `at` is the time of measurement in seconds since 1970."""

    at: float


class ModelUsage(ModelUsageCounts):
    """Storage usage of a model. A deleted model is listed until its files are removed.

    `jobs`: number of jobs by state.
    """

    model: str
    name: str
    owner: str
    deleted: bool


class OwnerUsage(OwnerUsageSums):
    """Storage usage of an owner. `models` counts those that are not deleted; `jobs` counts by
    state.
    """

    owner: str
    measured_at: str
