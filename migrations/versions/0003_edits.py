"""Edits of what a model was taught: the edits, the files before them, and former class names."""

import sqlalchemy as sa
from alembic import op

revision = "0003_edits"
down_revision = "0002_problem"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply; older models have no edits."""
    op.create_table(
        "edits",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("model_id", sa.String(40), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("operations", sa.JSON(), nullable=False),
        sa.Column("way", sa.String(12), nullable=False),
        sa.Column("tasks", sa.JSON(), nullable=False),
        sa.Column("parent", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("version", sa.BigInteger()),
        sa.Column("journal", sa.JSON()),
        sa.Column("undo_until", sa.Float(53)),
        sa.Column("undone_at", sa.Float(53)),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_edits_model_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_edits_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_edits"),
        sa.UniqueConstraint("job_id", name="uq_edits_job_id"),
        sa.UniqueConstraint("model_id", "number", name="uq_edits_model_id_number"),
    )
    op.create_table(
        "edited_parts",
        sa.Column("edit_id", sa.String(40), nullable=False),
        sa.Column("task_id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["edit_id"], ["edits.id"], name="fk_edited_parts_edit_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_edited_parts_task_id"),
        sa.PrimaryKeyConstraint("edit_id", "task_id", "kind", name="pk_edited_parts"),
    )
    op.create_index("ix_edited_parts_sha256", "edited_parts", ["sha256"])
    op.create_index("ix_edited_parts_task_id", "edited_parts", ["task_id"])
    op.create_index("ix_edited_parts_until", "edited_parts", ["until"])
    op.create_table(
        "class_aliases",
        sa.Column("model_id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("to", sa.String(100)),
        sa.Column("edit", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_class_aliases_model_id"),
        sa.PrimaryKeyConstraint("model_id", "name", name="pk_class_aliases"),
    )


def downgrade() -> None:
    """Take back; edits that were made stay in their versions and tasks."""
    op.drop_table("class_aliases")
    op.drop_table("edited_parts")
    op.drop_table("edits")
