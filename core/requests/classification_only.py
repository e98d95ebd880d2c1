"""Requests that are answered only of models that predict classes."""

from core.database.tables import Model
from core.errors import Invalid


def require_classification_model(model: Model, what: str) -> None:
    """Check that a model predicts classes, not another kind of problem.

    Args:
        what: what was asked for, as the beginning of a sentence.

    Raises:
        Invalid: it predicts something else.
    """
    # None is classification, see `core.contract.problem`.
    if model.problem is None:
        return
    message = (
        f"{what} work for the problem classification, and {model.name!r} learns {model.problem}. "
        "Its metrics say how well its versions do."
    )
    raise Invalid(message, fields=[{"field": "model", "message": f"learns {model.problem}"}])
