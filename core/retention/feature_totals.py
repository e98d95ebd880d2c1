"""A model's totals, which the next job reads in place of the sums and features of all tasks
(`core.execution.feature_totals`).
"""

from core.database.tables import Model


def clear_feature_totals_in_model_row(model: Model) -> set[str]:
    """Remove a model's totals (sums of features that its methods stored) in the transaction that
    deletes their source.

    Returns:
        Their digest, for the caller to delete.
    """
    digests = {model.totals_sha256} if model.totals_sha256 is not None else set[str]()
    model.totals_sha256 = model.totals_bytes = model.totals_key = None
    return digests
