"""Warning about a version whose features have collapsed: both figures, and the last good version.

It advises nothing that uses the collapsed features: neither another head nor a model on them.
"""

from core.db.tables import Model, Version
from core.line.features import find_last_good, say_shares
from core.protocol.features import FeatureCount
from core.steps import LEFT_OPEN, Step
from core.work.biased_head import build_successor_request


def warn_collapsed(
    model: Model, version: Version, found: FeatureCount | None, production: int | None
) -> str | None:
    """Return the warning; None if the features have not collapsed, or nothing was compared.

    Args:
        version: a version that was judged already.
        production: the version in production once this one is published or held.
    """
    good = find_last_good(found)
    if good is None:
        return None
    now, before = say_shares(good)
    number, path = good["version"], f"/v1/models/{model.name}/aliases/production"
    return (
        f"The features of version {version.number} have collapsed: a linear discriminant on them "
        f"gets {now} held-out images of earlier tasks right, on those of version {number}, the "
        f"last good version, {before}. {_go_on(version, number, path, production)} Then send the "
        f"batch with a smaller learning rate or a method that leaves the features as they are, or "
        f"start a model on the features of version {number}: "
        f"{Step('POST', '/v1/models', body=build_successor_request(model, number))}."
    )


def _go_on(version: Version, good: int, path: str, production: int | None) -> str:
    move = {"version": good, "reason": LEFT_OPEN}
    if production == good and not version.gate["passed"]:
        return (
            f"Go on from version {good}, which stays in production: discard this batch or learn "
            f"it again."
        )
    if production is not None and production > good:
        back = Step("POST", f"{path}/rollback", body=move)
        return f"Go on from version {good}: roll production back to it with {back}."
    return (
        f"Go on from version {good}: promote it with {Step('PUT', path, body=move)}, which "
        f"moves the line to it."
    )
