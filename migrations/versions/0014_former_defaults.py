"""Recipes that name `si`, `lwf` or `dlcft` say their former defaults, which this release
changes.
"""

from migrations.former_defaults import Former, remove_hyperparameter, write_former_defaults

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

FORMER: Former = {
    "si": {"xi": 0.1},
    "lwf": {"weight": "constant"},
    "dlcft": {"curvature": "tkfac", "norms": "fold"},
}
"""`lwf` had no `weight`."""


def upgrade() -> None:
    """Apply."""
    write_former_defaults(FORMER)


def downgrade() -> None:
    """Remove `weight`, which older code does not know; the other values mean the same there."""
    remove_hyperparameter(FORMER, "weight")
