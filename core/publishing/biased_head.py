"""Warning about a version whose head predicts worse than its features allow, with the remedy."""

from collections.abc import Collection, Mapping

from core.contract.figures import BaselineClassifierCorrectCounts
from core.contract.jobs.job_result import LearnJobResult
from core.database.tables import Model
from perennial.steps import ApiRequestForAdvice

MARGIN = 0.05
"""Accuracy by which a baseline must be ahead of the version."""
SPREADS = 2
"""Standard errors by which a baseline must be ahead, so that few images do not mislead."""
REBALANCE = {"rebalance": {"epochs": 5}}
MOST_OF_NAME = 54
"""Most characters of a name to which a suffix is added: a name has 63 at most."""
_KEPT_IMAGES = frozenset({"buffer", "exemplars"})
_CLASSIFIERS = {"baseline_ncm": "nearest class mean", "baseline_lda": "linear discriminants"}


def find_biased_head_warning(
    model: Model, version: int, result: LearnJobResult, part_types: Collection[str]
) -> str | None:
    """Return a warning if a simple classifier on the same features is clearly better than the
    version's head.

    Args:
        part_types: types of the parts that the version stores.
    """
    baselines = {
        classifier_name: baseline
        for name, classifier_name in _CLASSIFIERS.items()
        if (baseline := getattr(result, name))
    }
    ahead = {
        classifier_name: baseline
        for classifier_name, baseline in baselines.items()
        if _is_baseline_better_than_head(baseline)
    }
    if not ahead:
        return None
    classifier_name, best = max(ahead.items(), key=lambda item: item[1].all[0])
    advice = _format_biased_head_advice(model, version, result, part_types)
    return (
        f"The features of version {version} tell the classes apart better than its head does: "
        f"{_format_percent_correct(best.all)} by {classifier_name}, "
        f"{_format_percent_correct(best.own)} by the head, of the same {best.all[1]:,} held-out "
        f"images. {advice}"
    )


def _is_baseline_better_than_head(baseline: BaselineClassifierCorrectCounts) -> bool:
    total = baseline.all[1]
    baseline_accuracy, head_accuracy = baseline.all[0] / total, baseline.own[0] / total
    variances = (p * (1 - p) for p in (baseline_accuracy, head_accuracy))
    spread = (sum(variances) / total) ** 0.5
    return bool(baseline_accuracy - head_accuracy > max(MARGIN, SPREADS * spread))


def _format_biased_head_advice(
    model: Model, version: int, result: LearnJobResult, part_types: Collection[str]
) -> str:
    """Return advice on a biased head: the request that helps. Another method needs a model of its
    own.

    It knows nothing of the earlier tasks, so it cannot continue this one.
    """
    if result.method.name == "analytic":
        other_head = "ridge" if result.method.hyper.get("head") == "lda" else "lda"
        patch = {"method": {"name": "analytic", "head": other_head}}
        return f"Send the next batch with another head: {_build_biased_head_remedy_request(model, patch)}."
    sentences = []
    plain = result.network is None
    # Rebalancing learns the head from stored images, so without any it would change nothing.
    if plain and not result.method.predicts_with and _KEPT_IMAGES & set(part_types):
        sentences.append(
            f"Send the next batch with `rebalance`: {_build_biased_head_remedy_request(model, REBALANCE)}."
        )
    opening = "Or start" if sentences else "Start"
    if plain:
        body = build_analytic_successor_request(model, version)
        sentences.append(
            f"{opening} a model from these features with method `analytic`, and send it the batches "
            f"again: {ApiRequestForAdvice('POST', '/v1/models', body=body)}."
        )
    else:
        sentences.append(
            f"{opening} a model with method `analytic`, which has no such bias, and send it the "
            f"batches again."
        )
    return " ".join(sentences)


def _build_biased_head_remedy_request(
    model: Model, recipe: Mapping[str, object]
) -> ApiRequestForAdvice:
    return ApiRequestForAdvice("POST", f"/v1/models/{model.name}/tasks", recipe=recipe)


def build_analytic_successor_request(model: Model, version: int) -> dict[str, object]:
    """Return the request body that creates a model on this version's backbone."""
    return {
        "name": f"{model.name[:MOST_OF_NAME]}-analytic",
        "scenario": model.scenario,
        "architecture": model.architecture,
        # A request may name only these fields of an image.
        "image": {name: model.image[name] for name in ("size", "channels")},
        "base": {"model": model.name, "version": version},
        "recipe": {"method": {"name": "analytic"}},
    }


def _format_percent_correct(counts: tuple[int, int]) -> str:
    return f"{100 * counts[0] / counts[1]:.0f} %"
