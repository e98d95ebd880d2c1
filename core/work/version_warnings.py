"""The warnings of a new version: what it lacks, and the one thing to do about what was measured of it."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from core.db.tables import Job, Model, Version
from core.line import line, words
from core.line.coverage import lacked, taught
from core.protocol.job_result import JobResult
from core.work import biased_head
from core.work.advice import advise_once
from core.work.collapsed import warn_collapsed
from core.work.confused_pairs import ConfusedPair
from core.work.negative_flips import Beside


def find_lacks(session: Session, model: Model, version: Version) -> list[str]:
    """Sentences about tasks that the version was not taught though they were learned once."""
    found = lacked(session, model, taught(version.manifest))
    return [words.missing(model, task, standing, f"Version {version.number}") for task, standing in found]


def find_warnings(
    session: Session,
    model: Model,
    job: Job,
    version: Version,
    found: JobResult,
    beside: Beside,
    confused: Sequence[ConfusedPair],
) -> list[str]:
    """Warnings of a version that was judged and is not yet published: of features that collapsed, else of its head,
    else advice for its line.

    Args:
        confused: pairs of classes that it takes for each other, the worst first.
    """
    passed = version.gate["passed"]
    stays = passed and model.production_follows and line.stays_behind(session, model, version)
    moves = passed and model.production_follows and not stays
    production = version.number if moves else beside.production
    said = warn_collapsed(model, version, beside.features, production)
    if said is None:
        said = biased_head.warning(model, version.number, found, {part.type for part in found.parts})
    advice = advise_once(session, model, version, job, confused, says_other=said is not None)
    one_class = words.one_class(version) if stays else None
    return [text for text in (said, advice, one_class) if text is not None]
