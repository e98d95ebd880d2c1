"""Recipes that trials may compare, in the order in which they are tried to fit a model."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.contract.patch import RecipePatch
from core.database.tables import Model

COUNTS, RANDOM = "counts", "random"
LEAST_TO_TRAIN = 50
"""Training images below which no candidate trains more than the head."""


@dataclass(frozen=True)
class TrialSuggestion:
    """A suggested trial: a recipe override, and the reason for trying it in a sentence."""

    patch: RecipePatch
    reason: str


def list_trial_suggestions(model: Model, is_first: bool, images: int) -> list[TrialSuggestion]:
    """Suggest recipes to try on a batch of a model, the most promising first.

    Some of them may not fit the model, which the caller checks.

    Args:
        is_first: True if the model was taught nothing yet.
        images: training images of the batch.
    """
    suggestions = [] if model.base == RANDOM else list(_suggest_closed_form_trials())
    if images >= LEAST_TO_TRAIN:
        suggestions += _suggest_trials_that_train_network(model, is_first)
    return [*suggestions, *_suggest_method_variants(model)]


def can_model_retain_training_images(model: Model) -> bool:
    """Return True if a model's settings let it keep training images after a batch."""
    may_stay = model.keep_training_data or model.training_data_days > 0
    return may_stay and model.held_out != COUNTS


def _suggest_closed_form_trials() -> Iterator[TrialSuggestion]:
    yield TrialSuggestion(
        {"method": {"name": "analytic", "head": "lda"}},
        "A discriminant in closed form takes one pass, forgets nothing, and answers rare classes "
        "as readily as frequent ones.",
    )
    yield TrialSuggestion(
        {"method": {"name": "analytic", "head": "ridge"}},
        "A ridge regression in closed form costs the same, and is often better where classes are "
        "not shaped alike.",
    )


def _suggest_trials_that_train_network(model: Model, is_first: bool) -> Iterator[TrialSuggestion]:
    if is_first:
        epochs, depth = (10, 5) if model.base == RANDOM else (5, 2)
        yield TrialSuggestion(
            {"method": {"name": "analytic", "adapt": {"epochs": epochs, "depth": depth}}},
            "The first batch trains the network once, which helps if its images differ from those "
            "of the base; later batches leave it.",
        )
    yield TrialSuggestion(
        {"method": {"name": "slca"}},
        "The whole network learns slowly, and the head is aligned by what it remembers of each "
        "class; no image is kept.",
    )
    if can_model_retain_training_images(model):
        yield TrialSuggestion(
            {"method": {"name": "er-ace"}},
            "The whole network learns, and earlier images are kept and replayed, which this "
            "model's settings allow.",
        )
        yield TrialSuggestion(
            {"method": {"name": "icarl"}},
            "Exemplars of each class are kept, and images are answered by the nearest mean of a "
            "class.",
        )


def _suggest_method_variants(model: Model) -> Iterator[TrialSuggestion]:
    yield TrialSuggestion(
        {"method": {"name": "analytic", "head": "ncm"}},
        "The nearest mean of a class needs the fewest images of each.",
    )
    yield TrialSuggestion(
        {"method": {"name": "analytic", "head": "ridge", "balanced": False, "offsets": False}},
        "A ridge regression that weighs images alike favours frequent classes, which is right if "
        "they stay frequent.",
    )
    yield TrialSuggestion(
        {"method": {"name": "analytic", "head": "lda", "prior": "empirical", "offsets": False}},
        "A discriminant that expects classes as often as they were sent.",
    )
    yield TrialSuggestion(
        {"method": {"name": "slca", "backbone_rate": 0.01}},
        "The network moves a tenth as much, which keeps what it knows.",
    )
    if can_model_retain_training_images(model):
        yield TrialSuggestion(
            {"method": {"name": "er-ace"}, "rebalance": {}},
            "The head is trained once more on equally many images of each class.",
        )
