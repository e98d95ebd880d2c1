"""The warnings of a new version: tasks that it lacks, collapsed features, and advice."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.contract.features import AncestorFeatureComparison
from core.contract.jobs.job_result import LearnJobResult
from core.database.tables import Job, Model, Version
from core.lineage import lineage, wording
from core.lineage.coverage import find_missing_rolled_back_or_skipped_tasks, list_taught_tasks
from core.lineage.feature_collapse import (
    find_ancestor_before_feature_collapse,
    format_feature_accuracies,
)
from core.publishing import biased_head
from core.publishing.advice import choose_and_record_accuracy_advice
from core.publishing.confused_pairs import ConfusedPair
from core.publishing.negative_flips import ProductionComparison
from perennial.steps import LEFT_OPEN, ApiRequestForAdvice


@dataclass(frozen=True)
class VersionWarningFacts:
    """Facts about a new version from which its warnings are made.

    Attributes:
        result: report of the job process.
        comparison: counts against production and earlier versions.
        confused: pairs of classes that the version confuses, the worst first.
    """

    result: LearnJobResult
    comparison: ProductionComparison
    confused: Sequence[ConfusedPair]


def describe_tasks_missing_in_version(
    session: Session, model: Model, version: Version
) -> list[str]:
    """Return a sentence for each rolled-back or skipped task that a version has not learned."""
    missing_tasks = find_missing_rolled_back_or_skipped_tasks(
        session, model, list_taught_tasks(version.manifest)
    )
    return [
        wording.describe_missing_task(model, task, standing, f"Version {version.number}")
        for task, standing in missing_tasks
    ]


def collect_version_warnings_and_record_advice(
    session: Session, model: Model, job: Job, version: Version, findings: VersionWarningFacts
) -> list[str]:
    """Return the warnings about a version that was judged and is not yet published.

    The first that applies: collapsed features, a biased head, or advice for its lineage.
    """
    passed = version.gate["passed"]
    # The version is judged and not yet published, so its effect on production is foreseen here.
    stays = (
        passed
        and model.production_follows
        and lineage.is_promotion_withheld_for_one_class(session, model, version)
    )
    moves = passed and model.production_follows and not stays
    production = version.number if moves else findings.comparison.production
    warning_text = build_feature_collapse_warning(
        model, version, findings.comparison.features, production
    )
    if warning_text is None:
        warning_text = biased_head.find_biased_head_warning(
            model, version.number, findings.result, {part.type for part in findings.result.parts}
        )
    # Called even after another warning, since it also records the conditions that hold.
    advice = choose_and_record_accuracy_advice(
        session, model, version, job, findings.confused, says_other=warning_text is not None
    )
    one_class = wording.explain_unpromoted_one_class_version(version) if stays else None
    return [text for text in (warning_text, advice, one_class) if text is not None]


def build_feature_collapse_warning(
    model: Model, version: Version, count: AncestorFeatureComparison | None, production: int | None
) -> str | None:
    """Return a warning if the new version's features are much less accurate than an ancestor's.

    It advises nothing that uses the collapsed features: neither another head nor a model on them.
    Return None if the features have not collapsed, or nothing was compared.

    Args:
        version: a version that was judged already.
        production: the version in production once this one is published or held.
    """
    good = find_ancestor_before_feature_collapse(count)
    if good is None:
        return None
    now, before = format_feature_accuracies(good)
    number, path = good["version"], f"/v1/models/{model.name}/aliases/production"
    next_steps = _describe_steps_after_feature_collapse(version, number, path, production)
    body = biased_head.build_analytic_successor_request(model, number)
    return (
        f"The features of version {version.number} have collapsed: a linear discriminant on them "
        f"gets {now} held-out images of earlier tasks right, on those of version {number}, the "
        f"last good version, {before}. {next_steps} Then send the batch with a "
        f"smaller learning rate or a method that leaves the features as they are, or "
        f"start a model on the features of version {number}: "
        f"{ApiRequestForAdvice('POST', '/v1/models', body=body)}."
    )


def _describe_steps_after_feature_collapse(
    version: Version, good: int, path: str, production: int | None
) -> str:
    move = {"version": good, "reason": LEFT_OPEN}
    if production == good and not version.gate["passed"]:
        return (
            f"Go on from version {good}, which stays in production: discard this batch or learn "
            f"it again."
        )
    if production is not None and production > good:
        back = ApiRequestForAdvice("POST", f"{path}/rollback", body=move)
        return f"Go on from version {good}: roll production back to it with {back}."
    return (
        f"Go on from version {good}: promote it with {ApiRequestForAdvice('PUT', path, body=move)}, which "
        f"moves the lineage to it."
    )
