"""The estimate of a comparison, from the first passes on the same machine."""

from collections.abc import Collection
from dataclasses import dataclass

LONG_S = 20 * 60.0
"""Seconds above which the estimate says how to shorten the comparison."""


@dataclass(frozen=True)
class Rates:
    """Measured seconds for one image: decoding, features, and a training step."""

    decode: float
    features: float
    training: float


@dataclass(frozen=True)
class Work:
    """Numbers of images to learn and to measure on, and of epochs of each training."""

    learned: int
    held_out: int
    epochs: int


def estimate_seconds(rates: Rates, work: Work, rows: Collection[str]) -> float:
    """Return the seconds that rows take. scikit-learn's classifiers share one pass for features."""
    images = work.learned + work.held_out
    training = work.epochs * work.learned * rates.training + work.held_out * rates.features
    each = {
        "finetune": training,
        "full": training,
        # The service gets files and decodes them itself, while the other rows share the pixels.
        "perennial": images * (rates.decode + rates.features),
    }
    shared = images * rates.features if {"lda", "logistic"} & set(rows) else 0.0
    return shared + sum(seconds for row, seconds in each.items() if row in rows)


def say_estimate(rates: Rates, work: Work, rows: Collection[str], cores: int) -> str:
    """Return the estimate as a sentence."""
    whole = estimate_seconds(rates, work, rows)
    text = f"This takes about {_in_words(whole)} on {cores} core{'' if cores == 1 else 's'}"
    if "full" in rows:
        without_full = estimate_seconds(rates, work, [row for row in rows if row != "full"])
        text += f"; --without full about {_in_words(without_full)}"
    if whole > LONG_S:
        text += ". Fewer images (--images) or epochs (--epochs) make it shorter"
    return f"{text}."


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes"
