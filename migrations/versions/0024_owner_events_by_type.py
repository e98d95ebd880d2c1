"""Events of an owner are found by their type, so that a rare one is not looked for among all the
others.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

FORMER = {
    "ix_owner_events_owner_id_id": ["owner_id", "id"],
    "ix_owner_events_model_id_id": ["model_id", "id"],
}
BY_TYPE = {
    "ix_owner_events_owner_id_type_id": ["owner_id", "type", "id"],
    "ix_owner_events_model_id_type_id": ["model_id", "type", "id"],
    "ix_owner_events_type_id": ["type", "id"],
}


def upgrade() -> None:
    """Apply."""
    _replace(FORMER, BY_TYPE)


def downgrade() -> None:
    """Take back."""
    _replace(BY_TYPE, FORMER)


def _replace(dropped: dict[str, list[str]], created: dict[str, list[str]]) -> None:
    for name, columns in created.items():
        op.create_index(name, "owner_events", columns)
    for name in dropped:
        op.drop_index(name, "owner_events")
