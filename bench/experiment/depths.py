"""Effects of the depth: the three questions of Iordache and Burceanu 2026 (arXiv
2604.21927).

Are methods ranked alike at every depth? Do updates grow with depth? Is forgetting tied more closely
to the size of updates when more may move? References (plain fine-tuning, joint) take no part.
Update size is a run's mean over its tasks, forgetting its figure after the last task; a point is
one run.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from bench.experiment.outcomes import RunOutcomeUnderProtocol
from bench.experiment.statistics import (
    Array,
    Figure,
    Interval,
    bootstrap_statistic_interval,
    compute_kendall_tau,
    compute_mean_with_interval,
    compute_pearson_correlation,
    compute_spearman_correlation,
)

FIGURES = ("acc", "forgetting", "update_norm")
Coefficient = Callable[[Array, Array], Array]


class NetworkDepthStudy:
    """Study of network depths in one data set, scenario and protocol: update norms and forgetting.

    `accuracy`, `forgetting`, `moved`: [repetition, depth, method]; what is missing or undefined is
    NaN. Depths are named by their index in `depths`.
    """

    def __init__(self, outcomes: Sequence[RunOutcomeUnderProtocol]) -> None:
        judged = [o for o in outcomes if not o.run.reference]
        self.depths = sorted({o.run.depth for o in judged})
        self.methods = list(dict.fromkeys(o.run.method for o in judged))
        repetitions = list(dict.fromkeys(o.order_and_seed for o in judged))
        self.repetitions = len(repetitions)
        table = np.full(
            (len(FIGURES), len(repetitions), len(self.depths), len(self.methods)), math.nan, float
        )
        for o in judged:
            at = (
                repetitions.index(o.order_and_seed),
                self.depths.index(o.run.depth),
                self.methods.index(o.run.method),
            )
            for i, name in enumerate(FIGURES):
                value = o.figures[name]
                table[i, *at] = math.nan if value is None else value
        self.accuracy, self.forgetting, self.moved = table

    @property
    def has_several_depths(self) -> bool:
        """True if any method has results at several network depths."""
        return bool((np.isfinite(self.accuracy).any(0).sum(0) > 1).any())

    def compute_mean_update_norm(self, depth: int) -> Figure:
        """Return the mean norm of weight updates at a network depth, over repetitions."""
        return compute_mean_with_interval(_average_defined(self.moved[:, depth]).tolist())

    def compute_mean_forgetting(self, depth: int) -> Figure:
        """Return the mean forgetting at a network depth, over repetitions."""
        return compute_mean_with_interval(_average_defined(self.forgetting[:, depth]).tolist())

    def compute_update_norm_growth(self, first: int, second: int) -> Figure:
        """Return how much the update norm grows between two network depths, for runs with equal
        seeds.
        """
        return compute_mean_with_interval(
            _average_defined(self.moved[:, second] - self.moved[:, first]).tolist()
        )

    def count_measured_runs(self, depth: int) -> int:
        """Return the number of runs at a network depth with both update norm and forgetting."""
        return int(np.isfinite(self.moved[:, depth] + self.forgetting[:, depth]).sum())

    def correlate_forgetting_with_update_norm(self, depth: int, coefficient: Coefficient) -> Figure:
        """Return the correlation of forgetting with the update norm over all runs at a network
        depth.
        """
        return bootstrap_statistic_interval(
            self.repetitions,
            lambda draws: self._compute_resampled_correlations(depth, coefficient, draws),
        )

    def compute_correlation_growth_with_depth(self, coefficient: Coefficient) -> Figure:
        """Return the correlation at the greatest network depth minus that at the smallest."""
        return bootstrap_statistic_interval(
            self.repetitions,
            lambda draws: (
                self._compute_resampled_correlations(-1, coefficient, draws)
                - self._compute_resampled_correlations(0, coefficient, draws)
            ),
        )

    def compute_ranking_agreement(self, first: int, second: int) -> Figure:
        """Return Kendall's tau-b between the rankings of methods by mean ACC at two network depths."""
        return bootstrap_statistic_interval(
            self.repetitions,
            lambda draws: compute_kendall_tau(
                *(_average_defined(self.accuracy[draws, depth], 1) for depth in (first, second))
            ),
        )

    def compute_ranking_agreements(self) -> dict[tuple[int, int], Figure]:
        """Return Kendall's tau-b between the rankings of methods for every pair of network depths."""
        return {
            pair: self.compute_ranking_agreement(*pair)
            for pair in combinations(range(len(self.depths)), 2)
        }

    def find_ranking_reversals(self) -> list[tuple[str, str, list[int], list[int]]]:
        """Find pairs of methods of which each is significantly better at some network depths.

        Significantly: the 95 % t-interval of the ACC difference, paired by repetition, excludes 0.
        """
        reversals = []
        for a, b in combinations(range(len(self.methods)), 2):
            intervals = [
                compute_mean_with_interval(
                    (self.accuracy[:, depth, a] - self.accuracy[:, depth, b]).tolist()
                )[1]
                for depth in range(len(self.depths))
            ]
            above = [depth for depth, limits in enumerate(intervals) if limits and limits[0] > 0]
            below = [depth for depth, limits in enumerate(intervals) if limits and limits[1] < 0]
            if above and below:
                reversals.append((self.methods[a], self.methods[b], above, below))
        return reversals

    def _compute_resampled_correlations(
        self, depth: int, coefficient: Coefficient, draws: npt.NDArray[np.int64]
    ) -> Array:
        x, y = (
            table[draws, depth].reshape(len(draws), -1) for table in (self.moved, self.forgetting)
        )
        return coefficient(x, y)


def _average_defined(values: Array, axis: int = -1) -> Array:
    """Return the mean of the defined values; NaN if there is none."""
    is_defined = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(is_defined, values, 0).sum(axis) / is_defined.sum(axis))


def describe_depth_findings(study: NetworkDepthStudy) -> list[str]:
    """Describe the findings about network depth in three Markdown paragraphs."""
    return [
        _describe_ranking_agreement(study),
        _describe_update_norm_growth(study),
        _describe_forgetting_norm_correlation(study),
    ]


def _describe_ranking_agreement(study: NetworkDepthStudy) -> str:
    pairs = study.compute_ranking_agreements()
    taus = {pair: tau for pair, (tau, _) in pairs.items() if tau is not None}
    if not taus:
        return (
            "**Rankings of the methods cannot be compared**: fewer than two methods rank at two "
            "depths."
        )
    lowest = min(taus, key=lambda pair: taus[pair])
    same = sum(tau == 1 for tau in taus.values())
    turned = [
        f"{above} above {below} at depth {_format_depths(study, higher)}, below it at "
        f"{_format_depths(study, lower)}"
        for above, below, higher, lower in study.find_ranking_reversals()
    ]
    if same == len(taus):
        verdict = "yes"
    elif turned:
        verdict = "no"
    else:
        verdict = "no change is shown beyond what orders and seeds do"
    return (
        f"**Rankings of the methods are preserved across depths: {verdict}.** Kendall's tau-b of "
        "mean ACC is 1 for "
        f"{same} of {len(taus)} pairs of depths; lowest at depths {study.depths[lowest[0]]} and "
        f"{study.depths[lowest[1]]}: {format_statistic(pairs[lowest])}. Pairs of methods surely ordered one "
        "way at some depth and "
        f"the other way at another: {'; '.join(turned) or 'none'}."
    )


def _format_depths(study: NetworkDepthStudy, depths: Sequence[int]) -> str:
    return ", ".join(str(study.depths[depth]) for depth in depths)


def _describe_update_norm_growth(study: NetworkDepthStudy) -> str:
    last = len(study.depths) - 1
    total_growth = study.compute_update_norm_growth(0, last)
    steps = {
        f"{study.depths[a]} to {study.depths[b]}": study.compute_update_norm_growth(a, b)
        for a, b in pairwise(range(last + 1))
    }
    more = sum(interval is not None and interval[0] > 0 for _, interval in steps.values())
    less = sum(interval is not None and interval[1] < 0 for _, interval in steps.values())
    return (
        "**Updates are larger at the greatest depth than at the smallest: "
        f"{_answer_whether_interval_is_positive(total_growth[1], 'smaller')}.** Growth of the mean update norm "
        f"from depth {study.depths[0]} to {study.depths[-1]}: {format_statistic(total_growth)}. "
        f"Surely larger in {more} and smaller in {less} of {len(steps)} steps: "
        + "; ".join(f"{step}: {format_statistic(figure)}" for step, figure in steps.items())
    )


def _describe_forgetting_norm_correlation(study: NetworkDepthStudy) -> str:
    coefficients = {
        "Pearson's r": compute_pearson_correlation,
        "Spearman's": compute_spearman_correlation,
    }
    verdicts, facts = [], []
    for name, coefficient in coefficients.items():
        first, last = (
            study.correlate_forgetting_with_update_norm(depth, coefficient) for depth in (0, -1)
        )
        growth = study.compute_correlation_growth_with_depth(coefficient)
        verdict = _answer_whether_interval_is_positive(growth[1], "more weakly")
        # A negative correlation that rises is no closer tie.
        if last[1] and last[1][1] < 0:
            verdict = "no, it is negative there"
        elif last[1] and last[1][0] <= 0 and verdict == "yes":
            verdict = "not shown, it may be 0 there"
        verdicts.append(f"by {name} {verdict}")
        facts.append(
            f"{name} {format_statistic(first)} → {format_statistic(last)}, difference {format_statistic(growth)}"
        )
    return (
        "**Forgetting correlates more strongly with update size at the greatest depth than at the "
        "smallest: "
        f"{'; '.join(verdicts)}.** {'; '.join(facts)}."
    )


def format_statistic(figure: Figure) -> str:
    """Format a statistic with its confidence interval."""
    value, interval = figure
    if value is None:
        return "undefined"
    return f"{value:.3f}" + (
        f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else " (no interval)"
    )


def _answer_whether_interval_is_positive(interval: Interval | None, opposite: str) -> str:
    if interval is None:
        return "cannot be told"
    if interval[0] > 0:
        return "yes"
    return f"no, {opposite}" if interval[1] < 0 else "not shown, the interval includes 0"
