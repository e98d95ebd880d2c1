"""Recipes that name `analytic` say that classes have no offsets, which this release gives them by
default.
"""

from migrations.former_defaults import (
    Former,
    remove_field,
    remove_hyperparameter,
    write_former_defaults,
)

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

FORMER: Former = {"analytic": {"offsets": False}}


def upgrade() -> None:
    """Apply."""
    write_former_defaults(FORMER)


def downgrade() -> None:
    """Remove `offsets` and `balanced_batches`, which older code does not know and refuses.

    New models have had `balanced_batches` since this revision.
    """
    remove_hyperparameter(FORMER, "offsets")
    remove_field("balanced_batches")
