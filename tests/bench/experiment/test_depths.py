"""The three questions about depth, on made-up outcomes."""

import itertools

import numpy as np
import pytest
from experiments import make_run
from scipy import stats

from bench.experiment import statistics
from bench.experiment.depths import NetworkDepthStudy, describe_depth_findings
from bench.experiment.figures import _draw_forgetting_against_update_norm
from bench.experiment.outcomes import RunOutcomeUnderProtocol


def make_outcome(method, depth, order, acc, forgetting, norm, reference=False):
    run = make_run(method, depth=depth, order=order, reference=reference)
    figures = {"acc": acc, "forgetting": forgetting, "update_norm": norm}
    return RunOutcomeUnderProtocol(run, "class", [], figures, [], [], None, {})


def make_study(value, methods="abc", depths=(1, 5), orders=6):
    """Make a study whose runs have value(method's index, depth, order) = (acc, forgetting, norm)."""
    cells = itertools.product(enumerate(methods), depths, range(orders))
    return NetworkDepthStudy([make_outcome(m, d, o, *value(i, d, o)) for (i, m), d, o in cells])


def draw_noise(*seed):
    return float(np.random.default_rng(seed).normal())


def test_turned_rankings_have_tau_minus_one_and_are_called_not_preserved():
    turned = make_study(
        lambda m, d, o: ((m if d == 1 else -m) + 0.01 * draw_noise(m, d, o), 0.1, 1.0)
    )
    assert turned.compute_ranking_agreement(0, 1) == (-1.0, (-1.0, -1.0))
    text = describe_depth_findings(turned)[0]
    assert "across depths: no.** Kendall's tau-b of mean ACC is 1 for 0 of 1 pairs" in text
    assert (
        "a above b at depth 5, below it at 1; a above c at depth 5, below it at 1; b above c"
        in text
    )
    kept = make_study(lambda m, d, o: (m + 0.01 * draw_noise(m, d, o), 0.1, 1.0))
    assert kept.compute_ranking_agreement(0, 1)[0] == 1
    assert "are preserved across depths: yes.**" in describe_depth_findings(kept)[0]
    assert "the other way at another: none." in describe_depth_findings(kept)[0]


def test_ranks_that_turn_by_chance_alone_are_no_finding():
    equal = make_study(
        lambda m, d, o: (0.2 + 0.01 * draw_noise(m, d, o), 0.1, 1.0),
        depths=(1, 2, 3, 4, 5),
        orders=11,
    )
    assert min(tau for tau, _ in equal.compute_ranking_agreements().values()) < 1
    assert "across depths: no change is shown" in describe_depth_findings(equal)[0]
    single = make_study(lambda m, d, o: (m if d == 1 else -m, 0.1, 1.0), orders=1)
    assert single.compute_ranking_agreement(0, 1) == (-1.0, None)
    assert "across depths: no change is shown" in describe_depth_findings(single)[0]


def test_ranks_are_those_of_the_mean_over_orders():
    # Method a wins five orders narrowly and loses one by far.
    lopsided = make_study(
        lambda m, d, o: ((-1.0 if (d, o) == (5, 0) else 0.1) if m == 0 else 0.0 - m, 0.1, 1.0), "ab"
    )
    assert lopsided.compute_ranking_agreement(0, 1)[0] == 1
    far = make_study(
        lambda m, d, o: ((-9.0 if (d, o) == (5, 0) else 0.1) if m == 0 else 0.0 - m, 0.1, 1.0), "ab"
    )
    assert far.compute_ranking_agreement(0, 1)[0] == -1


def test_growth_of_updates_is_paired_by_order():
    # Orders differ by far more than depths; only within an order is the growth visible.
    grown = make_study(
        lambda m, d, o: (m, 0.1, 100.0 * o + d + 0.01 * draw_noise(m, d, o)), depths=(1, 2, 3)
    )
    value, (low, high) = grown.compute_update_norm_growth(0, 1)
    assert value == pytest.approx(1.0, abs=0.05)
    assert 0.9 < low < high < 1.1
    assert grown.compute_update_norm_growth(0, 2)[0] == pytest.approx(2.0, abs=0.05)
    low, high = grown.compute_mean_update_norm(0)[1]
    assert high - low > 100
    assert "at the greatest depth than at the smallest: yes.**" in describe_depth_findings(grown)[1]
    assert "Surely larger in 2 and smaller in 0 of 2 steps" in describe_depth_findings(grown)[1]
    hill = make_study(
        lambda m, d, o: (m, 0.1, 1.0 + (d == 2) + 0.5 * (d == 3) + draw_noise(m, d, o) * 0.01),
        depths=(1, 2, 3),
    )
    assert "at the greatest depth than at the smallest: yes.**" in describe_depth_findings(hill)[1]
    assert "Surely larger in 1 and smaller in 1 of 2 steps" in describe_depth_findings(hill)[1]
    falling = make_study(lambda m, d, o: (m, 0.1, 9.0 - d + draw_noise(m, d, o) * 0.01))
    assert "at the smallest: no, smaller.**" in describe_depth_findings(falling)[1]


def test_the_correlation_takes_every_run_of_a_depth_and_nothing_else():
    made = make_study(lambda m, d, o: (0.5, draw_noise(m, d, o), draw_noise(m, d, o, 1)), orders=5)
    points = [(draw_noise(m, 5, o, 1), draw_noise(m, 5, o)) for m in range(3) for o in range(5)]
    expected = stats.spearmanr(*zip(*points, strict=True))[0]
    value, (low, high) = made.correlate_forgetting_with_update_norm(
        1, statistics.compute_spearman_correlation
    )
    assert value == pytest.approx(expected, abs=1e-12)
    assert low < value < high
    assert made.count_measured_runs(1) == 15


def test_a_closer_tie_at_the_greatest_depth_is_found():
    def draw_depth_values(m, d, o):
        norm = draw_noise(m, d, o)
        return 0.5, norm + (0.01 if d == 5 else 5.0) * draw_noise(m, d, o, 1), norm

    close = make_study(draw_depth_values, orders=11)
    text = describe_depth_findings(close)[2]
    assert (
        "at the greatest depth than at the smallest: by Pearson's r yes; by Spearman's yes.**"
        in text
    )
    same = make_study(
        lambda m, d, o: (0.5, draw_noise(m, o) + draw_noise(m, o, 1), draw_noise(m, o, 1)),
        orders=11,
    )
    assert "by Spearman's not shown, the interval includes 0.**" in describe_depth_findings(same)[2]


def test_a_negative_correlation_that_shrinks_is_no_closer_tie():
    def draw_depth_values(m, d, o):
        norm = draw_noise(m, d, o)
        return 0.5, -norm + (1.0 if d == 5 else 0.01) * draw_noise(m, d, o, 1), norm

    made = make_study(draw_depth_values, orders=11)
    assert (
        made.compute_correlation_growth_with_depth(statistics.compute_pearson_correlation)[1][0] > 0
    )
    assert (
        "by Pearson's r no, it is negative there; by Spearman's no, it is negative there.**"
        in describe_depth_findings(made)[2]
    )


def test_head_only_runs_without_forgetting_have_no_correlation():
    still = make_study(
        lambda m, d, o: (0.5, 0.0 if d == 1 else draw_noise(m, o), draw_noise(m, o, d))
    )
    assert still.correlate_forgetting_with_update_norm(
        0, statistics.compute_pearson_correlation
    ) == (
        None,
        None,
    )
    assert "cannot be told" in describe_depth_findings(still)[2]


def test_references_take_no_part_and_missing_runs_leave_a_gap():
    rows = [make_outcome("a", 5, o, 0.5 + o, 0.1 * o, float(o)) for o in range(4)]
    rows += [make_outcome("b", 5, o, 0.4 + o, 0.1, 1.0) for o in (0, 2)]
    rows += [make_outcome("finetune", 5, o, 0.0, 9.0, 9.0, reference=True) for o in range(4)]
    made = NetworkDepthStudy(rows)
    assert made.methods == ["a", "b"]
    assert np.isnan(made.accuracy[:, 0, 1]).tolist() == [False, True, False, True]
    assert made.count_measured_runs(0) == 6


def test_an_undefined_figure_is_a_gap():
    made = NetworkDepthStudy(
        [make_outcome("a", 5, 0, 0.5, None, 1.0), make_outcome("a", 5, 1, 0.5, 0.2, 1.0)]
    )
    assert made.count_measured_runs(0) == 1


def test_a_method_has_the_colour_that_it_has_in_the_other_figures():
    figure = _draw_forgetting_against_update_norm(
        make_study(lambda m, d, o: (0.5, draw_noise(m, d, o), draw_noise(m, d, o, 1)), "ab"),
        ["plain", "a", "b"],
    )
    assert [line.get_color() for line in figure.axes[0].lines] == ["C1", "C2"]
    (legend,) = figure.legends
    assert [(h.get_label(), h.get_color()) for h in legend.legend_handles] == [
        ("a", "C1"),
        ("b", "C2"),
    ]
