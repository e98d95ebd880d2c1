"""What changes with the depth that may move: the three questions of Iordache and Burceanu 2026 (arXiv 2604.21927).

Are methods ranked alike at every depth? Do updates grow with depth? Is forgetting tied more closely to the size
of updates when more may move? References (plain fine-tuning, joint) take no part. Update size is a run's mean
over its tasks, forgetting its figure after the last task; a point is one run.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np

from bench.experiment.outcomes import Outcome
from bench.experiment.statistics import (
    Array,
    Figure,
    Interval,
    bootstrapped,
    kendall,
    mean,
    pearson,
    spearman,
)

FIGURES = ("acc", "forgetting", "update_norm")
Coefficient = Callable[[Array, Array], Array]


class DepthStudy:
    """Outcomes of one data set, scenario and protocol.

    `accuracy`, `forgetting`, `moved`: [repetition, depth, method]; what is missing or undefined is NaN. Depths
    are named by their index in `depths`.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        judged = [o for o in outcomes if not o.run.reference]
        self.depths = sorted({o.run.depth for o in judged})
        self.methods = list(dict.fromkeys(o.run.method for o in judged))
        repetitions = list(dict.fromkeys(o.repetition for o in judged))
        self.repetitions = len(repetitions)
        table = np.full(
            (len(FIGURES), len(repetitions), len(self.depths), len(self.methods)), math.nan, float
        )
        for o in judged:
            at = (
                repetitions.index(o.repetition),
                self.depths.index(o.run.depth),
                self.methods.index(o.run.method),
            )
            for i, name in enumerate(FIGURES):
                value = o.figures[name]
                table[i, *at] = math.nan if value is None else value
        self.accuracy, self.forgetting, self.moved = table

    @property
    def compares(self) -> bool:
        """Whether any method has results at several depths."""
        return bool((np.isfinite(self.accuracy).any(0).sum(0) > 1).any())

    def updates(self, depth: int) -> Figure:
        """Mean update norm; a repetition counts once, with the mean over its methods."""
        return mean(_mean(self.moved[:, depth]).tolist())

    def update_growth(self, depth: int) -> Figure:
        """Mean growth of the update norm from a depth to the next, each run compared with its twin."""
        return mean(_mean(self.moved[:, depth + 1] - self.moved[:, depth]).tolist())

    def points(self, depth: int) -> int:
        """How many runs at this depth have both update norm and forgetting."""
        return int(np.isfinite(self.moved[:, depth] + self.forgetting[:, depth]).sum())

    def correlation(self, depth: int, coefficient: Coefficient) -> Figure:
        """Correlation of forgetting with the update norm over all runs at a depth."""
        return bootstrapped(self.repetitions, lambda draws: self._correlation(depth, coefficient, draws))

    def correlation_growth(self, coefficient: Coefficient) -> Figure:
        """Correlation at the greatest depth minus that at the smallest."""
        return bootstrapped(
            self.repetitions,
            lambda draws: (
                self._correlation(-1, coefficient, draws) - self._correlation(0, coefficient, draws)
            ),
        )

    def agreement(self, first: int, second: int) -> Figure:
        """Kendall's tau-b between the rankings of methods by mean ACC at two depths."""
        return bootstrapped(
            self.repetitions,
            lambda draws: kendall(*(_mean(self.accuracy[draws, depth], 1) for depth in (first, second))),
        )

    def agreements(self) -> dict[tuple[int, int], Figure]:
        """`agreement` of every pair of depths."""
        return {pair: self.agreement(*pair) for pair in combinations(range(len(self.depths)), 2)}

    def _correlation(self, depth: int, coefficient: Coefficient, draws: Array) -> Array:
        x, y = (table[draws, depth].reshape(len(draws), -1) for table in (self.moved, self.forgetting))
        return coefficient(x, y)


def _mean(values: Array, axis: int = -1) -> Array:
    """Mean of the values that are there; NaN when there is none."""
    there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(there, values, 0).sum(axis) / there.sum(axis)


def findings(study: DepthStudy) -> list[str]:
    """The three answers in plain words, as Markdown paragraphs."""
    return [_ranking(study), _growth(study), _tie(study)]


def _ranking(study: DepthStudy) -> str:
    pairs = study.agreements()
    taus = {pair: tau for pair, (tau, _) in pairs.items() if tau is not None}
    if not taus:
        return "**Rankings of the methods cannot be compared**: fewer than two methods rank at two depths."
    lowest = min(taus, key=lambda pair: taus[pair])
    same = sum(tau == 1 for tau in taus.values())
    return (
        f"**Rankings of the methods are {'' if same == len(taus) else 'not '}preserved across depths**: Kendall's "
        f"tau-b of mean ACC is 1 for {same} of {len(taus)} pairs of depths; lowest at depths "
        f"{study.depths[lowest[0]]} and {study.depths[lowest[1]]}: {show(pairs[lowest])}."
    )


def _growth(study: DepthStudy) -> str:
    steps = {f"{a} to {b}": study.update_growth(i) for i, (a, b) in enumerate(pairwise(study.depths))}
    sure = sum(interval is not None and interval[0] > 0 for _, interval in steps.values())
    verdict = "yes" if sure == len(steps) else f"shown for {sure} of {len(steps)} steps"
    return f"**Updates grow with depth: {verdict}.** Growth of the mean update norm per step: " + "; ".join(
        f"{step}: {show(figure)}" for step, figure in steps.items()
    )


def _tie(study: DepthStudy) -> str:
    linear, ranks = study.correlation_growth(pearson), study.correlation_growth(spearman)
    return (
        "**Forgetting is tied more closely to update size at the greatest depth than at the smallest: "
        f"{_verdict(linear[1])}.** Difference of Pearson's r {show(linear)}, of Spearman's {show(ranks)}."
    )


def show(figure: Figure) -> str:
    """A statistic with its interval, as text."""
    value, interval = figure
    if value is None:
        return "undefined"
    return f"{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else " (no interval)")


def _verdict(interval: Interval | None) -> str:
    if interval is None:
        return "cannot be told"
    if interval[0] > 0:
        return "yes"
    return "no, less closely" if interval[1] < 0 else "not shown, the interval includes 0"
