"""Confident predictions: a model's promised precision, applied to a measured curve."""

from sqlalchemy.orm import Session

from core.contract.figures import CoveragePoint
from core.contract.responses.versions.sure import SureOut
from core.database.measurements import ALL_TASKS, CALIBRATION
from core.database.tables import Model, VersionMeasurement
from core.statistics.confidence_threshold import (
    choose_confidence_threshold,
    compute_images_required_for_promised_precision,
)


def choose_threshold_for_promised_precision(
    session: Session, model: Model, version: int
) -> SureOut | None:
    """Choose the confidence threshold that keeps a model's promised precision; return it with its
    coverage.

    Return None if the model promises nothing.
    """
    if model.answers is None:
        return None
    measurement = session.get(VersionMeasurement, (model.id, version, CALIBRATION, ALL_TASKS))
    # A version that was not measured is sure of nothing, instead of everything.
    curve = (
        []
        if measurement is None
        else [CoveragePoint.from_json(one) for one in measurement.detail.get("curve", [])]
    )
    precision = model.answers["precision"]
    chosen = choose_confidence_threshold(curve, precision)
    return {
        "precision": precision,
        "threshold": chosen.threshold,
        # The last point of a curve covers all held-out images.
        "images": curve[-1].images if curve else 0,
        "covered": chosen.covered,
        "right": chosen.right,
        "needed": compute_images_required_for_promised_precision(precision),
    }
