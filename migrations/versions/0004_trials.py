"""Trials of recipes for a batch, and images of batches that compare them."""

import sqlalchemy as sa
from alembic import op

revision = "0004_trials"
down_revision = "0003_edits"
branch_labels = None
depends_on = None

_UNFINISHED = "'paused', 'pausing', 'queued', 'running', 'validating'"
_HAS_SELECTION = "selection_sha256 IS NOT NULL AND held_out_deleted_at IS NULL"


def upgrade() -> None:
    """Apply; older models keep no such images, and older jobs have one recipe."""
    op.add_column(
        "models", sa.Column("selection", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("tasks", sa.Column("selection_sha256", sa.String(64)))
    op.add_column("tasks", sa.Column("n_selection", sa.BigInteger()))
    _create_index("tasks", "ix_tasks_selection_sha256", ["selection_sha256"], _HAS_SELECTION)
    _create_index("tasks", "ix_tasks_selection", ["model_id", "n_selection"], _HAS_SELECTION)
    op.add_column("jobs", sa.Column("choose", sa.String(8)))
    op.add_column("jobs", sa.Column("chosen_trial", sa.BigInteger()))
    op.add_column("jobs", sa.Column("choose_until", sa.Float(53)))
    _create_index("jobs", "ix_jobs_choose_until", ["choose_until"], "choose_until IS NOT NULL")
    # A job that waits for a choice is unfinished.
    _replace_unfinished(f"'cancelling', 'choosing', {_UNFINISHED}")
    op.create_table(
        "trials",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("recipe_override", sa.JSON(), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("parent", sa.BigInteger()),
        sa.Column("began_s", sa.Float(53)),
        sa.Column("seconds", sa.Float(53)),
        sa.Column("figures", sa.JSON()),
        sa.Column("error", sa.JSON()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_trials_job_id"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_trials"),
    )
    op.create_table(
        "trial_files",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("trial", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_trial_files_job_id"),
        sa.PrimaryKeyConstraint("job_id", "trial", "name", name="pk_trial_files"),
    )
    op.create_index("ix_trial_files_sha256", "trial_files", ["sha256"])


def downgrade() -> None:
    """Take back; jobs that wait for a choice have to be ended before."""
    op.drop_table("trial_files")
    op.drop_table("trials")
    _replace_unfinished(f"'cancelling', {_UNFINISHED}")
    op.drop_index("ix_jobs_choose_until", "jobs")
    for name in ("choose_until", "chosen_trial", "choose"):
        op.drop_column("jobs", name)
    op.drop_index("ix_tasks_selection", "tasks")
    op.drop_index("ix_tasks_selection_sha256", "tasks")
    for name in ("n_selection", "selection_sha256"):
        op.drop_column("tasks", name)
    op.drop_column("models", "selection")


def _create_index(table: str, name: str, columns: list[str], where: str) -> None:
    text = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=text, postgresql_where=text)


def _replace_unfinished(states: str) -> None:
    op.drop_index("ix_jobs_unfinished", "jobs")
    _create_index("jobs", "ix_jobs_unfinished", ["model_id", "task_number"], f"state IN ({states})")
