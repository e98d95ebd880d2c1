"""The figures of `bench.research.dlcft_updates`: what updates cost, and forecasts beside what
happened.
"""

import itertools
import math
import statistics
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from core.learning.methods.dlcft import DlcftHyper

FIRST, LAST = slice(1, 6), slice(-5, None)
"""Updates that are compared."""


@dataclass(frozen=True)
class NetworkPredictions:
    """A network's logits float64 [n, classes] for some images, with the true labels int64 [n].

    Arrays, since a tensor's memory is gone with the process that sends it.
    """

    logits: NDArray[np.float64]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class LossForecastTerms:
    """Forecast of how much the mean loss rises after an update, with its first- and second-order
    parts.

    `blocks`: the second order of layers by themselves; `late`: the rise by this update's own
    coupling, known after it.
    """

    rise: float
    bend: float
    slope: float
    blocks: float = math.nan
    late: float = math.nan


@dataclass
class DlcftUpdateMeasurement:
    """Measured costs and forecasts of one DLCFT update."""

    seconds: float
    processor: float
    evaluating: float
    peak: int
    bytes: dict[str, int]
    digests: dict[str, str]
    predicted: LossForecastTerms | None
    tasks: list[NetworkPredictions]
    test: NetworkPredictions
    measuring: float
    measured: tuple[LossForecastTerms, float] | None = None
    held_out: tuple[LossForecastTerms, float] | None = None


def compute_loss_and_accuracy_changes(
    before: list[NetworkPredictions], after: list[NetworkPredictions]
) -> tuple[LossForecastTerms, float]:
    """Return the mean change of loss and accuracy between two networks, over files of images."""
    changes = []
    for old, new in zip(before, after, strict=True):
        delta = new.logits - old.logits
        residual = old.logits - DlcftHyper().alpha * np.eye(delta.shape[1])[old.y]
        bend = (delta**2).sum(1).mean() / 2
        slope = (residual * delta).sum(1).mean()
        right = [
            (predictions.logits.argmax(1) == predictions.y).mean() for predictions in (old, new)
        ]
        changes.append((bend, slope, right[1] - right[0]))
    bend, slope, accuracy = (statistics.fmean(column) for column in zip(*changes, strict=True))
    return LossForecastTerms(bend + slope, bend, slope), accuracy


def describe_update_costs(updates: list[DlcftUpdateMeasurement]) -> list[str]:
    """Describe time, memory and bytes of DLCFT updates."""
    lines = [
        "update   s to the end of the curvature pass   s evaluating   peak MB   MB of parts   MB "
        "new"
    ]
    known_digests: set[str] = set()
    for i, update in enumerate(updates):
        new = sum(
            update.bytes[name]
            for name, digest in update.digests.items()
            if digest not in known_digests
        )
        known_digests |= set(update.digests.values())
        if i in (0, 1, len(updates) // 2, len(updates) - 1):
            lines.append(
                f"{i + 1:6} {update.seconds:36.2f} {update.evaluating:14.2f} "
                f"{update.peak / 1e6:9.0f} {sum(update.bytes.values()) / 1e6:13.2f} "
                f"{new / 1e6:8.2f}"
            )
    for name in ("seconds", "processor", "peak"):
        late, early = (
            statistics.median(getattr(u, name) for u in updates[part]) for part in (LAST, FIRST)
        )
        lines.append(f"{name}: last five over the second to sixth: {late / early:.3f} (goal ≤ 1.1)")
    backbones = [{n: d for n, d in u.digests.items() if n.startswith("backbone")} for u in updates]
    same = all(b == backbones[0] for b in backbones)
    lines.append(f"the base's parts are {'the same' if same else 'NOT the same'} in all versions")
    return lines


def describe_forecast_quality(
    updates: list[DlcftUpdateMeasurement], trials: list[DlcftUpdateMeasurement]
) -> list[str]:
    """Compare forecast and measured losses of DLCFT updates."""
    both = [(False, u) for u in updates] + [(True, u) for u in trials]
    lines = []
    for where, part in (
        ("images of the earlier tasks", "measured"),
        ("held-out images", "held_out"),
    ):
        rows = [
            (tried, u.predicted, *getattr(u, part)) for tried, u in both if u.predicted is not None
        ]
        tried = [row[0] for row in rows]
        predicted_terms, measured_terms = [row[1] for row in rows], [row[2] for row in rows]
        lines.append(
            f"{where}: predicted {_format_minimum_maximum_median([t.rise for t in predicted_terms])}; measured "
            f"{_format_minimum_maximum_median([t.rise for t in measured_terms])}"
        )
        rises, changes = [t.rise for t in measured_terms], [t.bend for t in measured_terms]
        for name, p, m in (
            ("forecast", [t.rise for t in predicted_terms], rises),
            ("forecast by the update's own coupling", [t.late for t in predicted_terms], rises),
            ("c/2 Δᵀ H Δ alone", [t.bend for t in predicted_terms], rises),
            ("1/2 Δᵀ H Δ alone", [t.blocks for t in predicted_terms], rises),
            ("c/2 Δᵀ H Δ and mean ½ ‖δ‖²", [t.bend for t in predicted_terms], changes),
            ("1/2 Δᵀ H Δ and mean ½ ‖δ‖²", [t.blocks for t in predicted_terms], changes),
            (
                "qᵀ Δ and mean (f - y)ᵀ δ",
                [t.slope for t in predicted_terms],
                [t.slope for t in measured_terms],
            ),
            (
                "forecast and fall of accuracy",
                [t.rise for t in predicted_terms],
                [-row[3] for row in rows],
            ),
        ):
            lines.append(f"  {name}: {_describe_rank_correlations(p, m, tried)}")
        lines += _compare_losses_by_forecast_band(
            [t.rise for t in predicted_terms], rises, [-row[3] for row in rows]
        )
    lines.append(
        f"known {statistics.median(u.measuring for u in updates[LAST]):.1f} s sooner than measured "
        "on the earlier "
        "tasks, in the last updates"
    )
    return lines


def _compare_losses_by_forecast_band(
    predicted: list[float], measured: list[float], falls: list[float]
) -> list[str]:
    """Compare forecast with measured losses of updates, in bands of the forecast."""
    edges = [-math.inf, -1, 0, 1, 3, 10, 30, 100, math.inf]
    lines = []
    for low, high in itertools.pairwise(edges):
        rows = [
            (p, m, f) for p, m, f in zip(predicted, measured, falls, strict=True) if low <= p < high
        ]
        if rows:
            p, m, f = (statistics.median(column) for column in zip(*rows, strict=True))
            lines.append(
                f"  forecast {low:g} to {high:g}: {len(rows)} updates; medians: forecast {p:.3g}, "
                f"measured {m:.3g}, "
                f"accuracy falls by {100 * f:.1f} points"
            )
    return lines


def _format_minimum_maximum_median(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}, median {statistics.median(values):.3g}"


def _describe_rank_correlations(
    predicted: list[float], measured: list[float], tried: list[bool]
) -> str:
    """Describe rank correlations between forecast and measured losses of updates."""
    columns = [predicted, measured, tried]
    parts = [list(zip(*columns, strict=True))]
    parts += [[row for row in parts[0] if row[2] is which] for which in (False, True)]
    all_, kept_correlation, tries = (
        scipy.stats.spearmanr([r[0] for r in rows], [r[1] for r in rows]).statistic
        for rows in parts
    )
    low, middle, high = statistics.quantiles([m / p for p, m, _ in parts[2] if p], n=4)
    return (
        f"rank correlation {all_:.3f} (kept {kept_correlation:.3f}, tried {tries:.3f}); of those tried, "
        "measured by predicted "
        f"{middle:.2f} ({low:.2f} to {high:.2f})"
    )
