"""Recipes that name `analytic` say its former defaults: a ridge on random features, which keeps
sums alone.

Another projection could not continue the sums of earlier tasks.
"""

from migrations.former_defaults import Former, remove_hyperparameter, write_former_defaults

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

FORMER: Former = {
    "analytic": {"head": "ridge", "projection": 1000, "balanced": False, "keep": "sums"},
}


def upgrade() -> None:
    """Apply."""
    write_former_defaults(FORMER)


def downgrade() -> None:
    """Remove `keep`, which older code does not know; the other values mean the same there."""
    remove_hyperparameter(FORMER, "keep")
