"""Trials: candidates for the recipe of a batch, which one job learns one after another."""

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.contract.error import JobError
from core.contract.jobs.trial import TrialMeasurements
from core.contract.patch import RecipePatch
from core.contract.responses.recipe import RecipeOut
from core.database.documents import DocumentColumn
from core.database.tables.table import JSON_COLUMN, Table


class Trial(Table):
    """Database row of a trial: one of several recipes that a job compares, and its result."""

    __tablename__ = "trials"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # from 1
    recipe_override: Mapped[RecipePatch] = mapped_column(JSON_COLUMN)
    recipe: Mapped[RecipeOut] = mapped_column(JSON_COLUMN)  # resolved
    reason: Mapped[str] = mapped_column(Text)
    # waiting, running, measured or failed
    state: Mapped[str] = mapped_column(String(12))
    # version that it was learned from; null while it waits
    parent: Mapped[int | None]
    # seconds that its job had run when it began, and seconds that it took
    began_s: Mapped[float | None]
    seconds: Mapped[float | None]
    figures: Mapped[TrialMeasurements | None] = mapped_column(DocumentColumn(TrialMeasurements))
    error: Mapped[JobError | None] = mapped_column(JSON_COLUMN)


class TrialFile(Table):
    """Database row of a file of a measured trial's result, kept until its job ends."""

    __tablename__ = "trial_files"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)  # path in the result's folder
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[int]
    __table_args__ = (Index("ix_trial_files_sha256", "sha256"),)
