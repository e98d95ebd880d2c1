"""The warnings of a new version: tasks that it lacks, and one piece of advice."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from core.db.tables import Job, Model, Version
from core.line import line, words
from core.line.coverage import find_lacked_tasks, list_taught_tasks
from core.protocol.job_result import JobResult
from core.work import biased_head
from core.work.advice import advise_once
from core.work.collapsed import warn_collapsed
from core.work.confused_pairs import ConfusedPair
from core.work.negative_flips import ProductionComparison


def find_lacks(session: Session, model: Model, version: Version) -> list[str]:
    """Return sentences about tasks that were learned once but that the version was not taught."""
    missing_tasks = find_lacked_tasks(session, model, list_taught_tasks(version.manifest))
    return [
        words.describe_missing(model, task, standing, f"Version {version.number}")
        for task, standing in missing_tasks
    ]


def find_warnings(
    session: Session,
    model: Model,
    job: Job,
    version: Version,
    found: JobResult,
    comparison: ProductionComparison,
    confused: Sequence[ConfusedPair],
) -> list[str]:
    """Return the warnings of a version that was judged and is not yet published.

    The first that applies: collapsed features, a biased head, or advice for its lineage.

    Args:
        confused: pairs of classes that it confuses, the worst first.
    """
    passed = version.gate["passed"]
    stays = passed and model.production_follows and line.stays_behind(session, model, version)
    moves = passed and model.production_follows and not stays
    production = version.number if moves else comparison.production
    warning_text = warn_collapsed(model, version, comparison.features, production)
    if warning_text is None:
        warning_text = biased_head.find_warning(
            model, version.number, found, {part.type for part in found.parts}
        )
    advice = advise_once(
        session, model, version, job, confused, says_other=warning_text is not None
    )
    one_class = words.one_class(version) if stays else None
    return [text for text in (warning_text, advice, one_class) if text is not None]
