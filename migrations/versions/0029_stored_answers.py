"""Answers of an update are one blob, in which those on each task have a key of the task:
`answers_key`. Features of held-out images are kept beside these images: `features_sha256`. A
model's sums over all tasks are kept as one blob: `totals_sha256`.

Answers from before are blobs of their own, which need no key. Features and totals are made by the
next job.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

KEPT = sa.text("features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL")
TOTALS = sa.text("totals_sha256 IS NOT NULL")
INDEXES = (
    ("ix_tasks_features_sha256", ["features_sha256"]),
    ("ix_tasks_features", ["model_id", "features_bytes"]),
)


def upgrade() -> None:
    """Apply."""
    op.add_column("tasks", sa.Column("features_sha256", sa.String(64), nullable=True))
    op.add_column("tasks", sa.Column("features_bytes", sa.BigInteger(), nullable=True))
    op.add_column("tasks", sa.Column("features_key", sa.String(64), nullable=True))
    op.add_column("tasks", sa.Column("answers_key", sa.String(64), nullable=True))
    op.add_column("models", sa.Column("totals_sha256", sa.String(64), nullable=True))
    op.add_column("models", sa.Column("totals_bytes", sa.BigInteger(), nullable=True))
    op.add_column("models", sa.Column("totals_key", sa.String(64), nullable=True))
    op.create_index(
        "ix_models_totals_sha256",
        "models",
        ["totals_sha256"],
        sqlite_where=TOTALS,
        postgresql_where=TOTALS,
    )
    for name, columns in INDEXES:
        op.create_index(name, "tasks", columns, sqlite_where=KEPT, postgresql_where=KEPT)


def downgrade() -> None:
    """Take back; what is encrypted is forgotten: the next job asks its parent again. Blobs are
    swept.
    """
    op.execute(
        "UPDATE results SET answers = NULL, answers_bytes = NULL WHERE EXISTS (SELECT 1 FROM tasks "
        "WHERE tasks.model_id = results.model_id AND tasks.number = results.task AND answers_key "
        "IS NOT NULL)"
    )
    for name, _ in reversed(INDEXES):
        op.drop_index(name, "tasks")
    op.drop_index("ix_models_totals_sha256", "models")
    for column in ("totals_key", "totals_bytes", "totals_sha256"):
        op.drop_column("models", column)
    for column in ("answers_key", "features_key", "features_bytes", "features_sha256"):
        op.drop_column("tasks", column)
