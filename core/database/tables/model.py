"""Models, the weights they may begin with, and the names of their versions."""

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.base import ModelBase, UploadedBaseDescription
from core.contract.gate import GateOut
from core.contract.patch import RecipePatch
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.contract.responses.versions.sure import AnswersSetting
from core.database.tables.table import JSON_COLUMN, SERIAL, DatabaseTable, build_partial_index


class UploadedBase(DatabaseTable):
    """Database row of uploaded weights that models may start from; the blob is a safetensors file."""

    __tablename__ = "bases"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    architecture: Mapped[UploadedBaseDescription] = mapped_column(JSON_COLUMN)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    bytes: Mapped[int]
    created_at: Mapped[float]


class FetchedPretrainedWeights(DatabaseTable):
    """Database row of pretrained weights, as downloaded last from a repository of the Hub.

    The row does not keep the blob: it is deleted with the last version that refers to it, and
    fetched again when needed.
    """

    __tablename__ = "weights"
    repository: Mapped[str] = mapped_column(String(200), primary_key=True)
    revision: Mapped[str | None] = mapped_column(String(64))  # commit; null: copied by hand
    sha256: Mapped[str | None] = mapped_column(String(64))  # null: never fetched
    bytes: Mapped[int | None]
    # job that is fetching them, while a worker has it
    job_id: Mapped[str | None] = mapped_column(String(40))


class Model(DatabaseTable):
    """Database row of a model: a named lineage of versions with its settings."""

    __tablename__ = "models"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    name: Mapped[str] = mapped_column(String(63))
    scenario: Mapped[str] = mapped_column(String(8))
    # what it predicts for an image; null: classification
    problem: Mapped[str | None] = mapped_column(String(40))
    architecture: Mapped[ArchitectureChoice] = mapped_column(JSON_COLUMN)
    image: Mapped[ImageOut] = mapped_column(JSON_COLUMN)
    base: Mapped[ModelBase] = mapped_column(JSON)
    # data scenario: fixed at creation or by task 1
    classes: Mapped[list[str] | None] = mapped_column(JSON_COLUMN)
    recipe: Mapped[RecipePatch] = mapped_column(JSON_COLUMN)  # as given; resolved for each job
    gate: Mapped[GateOut] = mapped_column(JSON_COLUMN)
    # null: no precision is promised, and no prediction is called confident
    answers: Mapped[AnswersSetting | None] = mapped_column(JSON_COLUMN)
    keep_training_data: Mapped[bool]
    # after a task's version is published
    training_data_days: Mapped[float] = mapped_column(default=7.0, server_default="7.0")
    held_out: Mapped[str] = mapped_column(String(8))  # keep or counts
    # keeps images of each batch that compare trials and are never learned
    selection: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Reaction of the lineage to a held version, a rejected batch, or a failed job: stop or
    # continue.
    on_held: Mapped[str] = mapped_column(String(8), default="stop", server_default="stop")
    on_rejected: Mapped[str] = mapped_column(
        String(8), default="continue", server_default="continue"
    )
    on_failed: Mapped[str] = mapped_column(String(8), default="continue", server_default="continue")
    # turns off the gate's check lost_tasks
    allow_lost_classes: Mapped[bool] = mapped_column(default=False, server_default=false())
    # version that the next task starts from, see core.lineage
    head: Mapped[int] = mapped_column(default=0, server_default="0")
    # if true, production points to the head
    production_follows: Mapped[bool] = mapped_column(default=True, server_default=true())
    warnings: Mapped[list[str]] = mapped_column(JSON_COLUMN)
    description: Mapped[str | None] = mapped_column(Text)
    tags: Mapped[list[str] | None] = mapped_column(JSON_COLUMN)  # null: none
    fence: Mapped[int] = mapped_column(default=0)  # rises with every claim of one of its jobs
    next_task: Mapped[int] = mapped_column(default=1)
    next_place: Mapped[int] = mapped_column(default=1)
    next_version: Mapped[int] = mapped_column(default=1)
    # job that fetches its base; null: version 0 exists
    base_job: Mapped[str | None] = mapped_column(String(40))
    # the model that it was made from and is to replace
    rebased_from: Mapped[str | None] = mapped_column(String(40))
    rebased_at: Mapped[float | None]  # time at which it replaced that model; null: not yet
    # derived blob, see core.execution.feature_totals
    totals_sha256: Mapped[str | None] = mapped_column(String(64))
    totals_bytes: Mapped[int | None]
    # digest of the parts that the totals are derived from
    totals_key: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[float]
    deleted_at: Mapped[float | None]
    __table_args__ = (
        Index(
            "uq_models_owner_id_name",
            "owner_id",
            "name",
            unique=True,
            # The name of a deleted model may be used again.
            sqlite_where=text("deleted_at IS NULL"),
            postgresql_where=text("deleted_at IS NULL"),
        ),
        Index("ix_models_owner_id_id", "owner_id", "id"),
        # used when an administrator looks up a name
        build_partial_index("ix_models_name", "name", "id", where="deleted_at IS NULL"),
        build_partial_index(
            "ix_models_totals_sha256", "totals_sha256", where="totals_sha256 IS NOT NULL"
        ),
        build_partial_index("ix_models_base_job", "id", where="base_job IS NOT NULL"),
        build_partial_index(
            "ix_models_rebased_from", "rebased_from", "id", where="rebased_from IS NOT NULL"
        ),
        CheckConstraint("scenario IN ('data', 'task', 'class')", name="scenario"),
    )


class Alias(DatabaseTable):
    """Database row of an alias: a movable name, such as `production`, for a version of a model."""

    __tablename__ = "aliases"
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    version: Mapped[int]
    updated_at: Mapped[float]


class AliasMove(DatabaseTable):
    """Database row of one move of an alias; the history is append-only."""

    __tablename__ = "alias_moves"
    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    alias: Mapped[str] = mapped_column(String(63))
    version: Mapped[int]
    previous: Mapped[int | None]
    cause: Mapped[str] = mapped_column(String(12))  # create, publish, set, rollback, follow
    actor: Mapped[str | None] = mapped_column(String(40))  # key id
    reason: Mapped[str | None] = mapped_column(Text)
    at: Mapped[float]
    __table_args__ = (
        Index("ix_alias_moves_model_id_alias_id", "model_id", "alias", "id"),
        {"sqlite_autoincrement": True},
    )
