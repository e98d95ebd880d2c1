"""A job's report on its images before it learns them, and that it learns the same with and
without telling.
"""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from streams import Bench, Script, run_learn_task

from core.learning.reports import suspicious_labels as suspecting
from core.learning.reports.data_findings import build_data_findings
from core.learning.reports.data_report import BatchHeldSignal, join_findings_that_hold_job
from core.learning.reports.mmd import PERMUTATIONS
from core.learning.reports.shift import (
    DataShiftSample,
    compute_image_channel_statistics,
    measure_data_shift,
)
from core.learning.reports.suspicious_labels import (
    estimate_label_probabilities,
    find_images_with_suspect_labels,
    reduce_feature_count_randomly,
)

GENERATOR = torch.Generator()


def get_data_report(learned) -> dict:
    (event,) = [e for e in learned.events if e["event"] == "data"]
    return event["report"]


def load_flipped_digits(
    flipped: float = 0.05, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return features and labels of digits, some of them wrong, and which ones are."""
    pixels, right = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(len(right))[: int(flipped * len(right))]
    labels = right.copy()
    labels[wrong] = (labels[wrong] + generator.integers(1, 10, len(wrong))) % 10
    return torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels), labels != right


@pytest.mark.parametrize("method", ["finetune", "der++"])
def test_training_has_the_same_bits_with_and_without_the_report(tmp_path, method: str) -> None:
    found = {}
    for policy in ("off", "warn"):
        bench = Bench(tmp_path / policy)
        second = bench.stream(2, method=method, data_report=policy)
        found[policy] = {k: v for k, v in second.digests.items() if k != "result.json"}
        assert any(e["event"] == "data" for e in second.events) == (policy == "warn")
    assert found["off"] == found["warn"]


def test_the_report_draws_nothing_from_the_global_generator_and_is_the_same_twice(bench) -> None:
    first = bench.learn_task(1)
    twice = [bench.learn_task(2, first, data_report="warn") for _ in range(2)]
    assert get_data_report(twice[0]) == get_data_report(twice[1])


def test_a_job_that_goes_on_from_a_snapshot_tells_nothing_twice_and_ends_with_the_same_bits(
    bench,
) -> None:
    whole = bench.learn_task(1, data_report="warn")
    again = bench.learn(bench.killed(bench.spec(1, None, data_report="warn"), Script([8], 9)))
    assert again.digests == whole.digests
    assert not [e for e in again.events if e["event"] == "data"]


@pytest.mark.parametrize("seed", range(3))
def test_most_flipped_labels_are_found_and_few_others(seed: int) -> None:
    features, labels, wrong = load_flipped_digits(seed=seed)
    found = find_images_with_suspect_labels(features, labels, GENERATOR)
    accused = np.zeros(len(wrong), bool)
    accused[found.rows] = True
    assert (accused & wrong).sum() / wrong.sum() >= 0.6
    assert (accused & wrong).sum() / accused.sum() >= 0.7
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    assert found.examined == len(labels)


def test_an_image_is_judged_without_itself() -> None:
    features, labels, _ = load_flipped_digits(0)
    for row in (0, 7):
        other = labels.clone()
        other[row] = (other[row] + 1) % 10
        assert estimate_label_probabilities(features, other)[row].argmax() == labels[row]


def test_classes_of_few_images_are_not_judged() -> None:
    features, labels = torch.randn(14, 3, generator=GENERATOR), torch.tensor([0] * 10 + [1] * 4)
    assert find_images_with_suspect_labels(features, labels, GENERATOR).examined == 0
    labels[9] = 1
    assert find_images_with_suspect_labels(features, labels, GENERATOR).examined == 14


def test_wide_features_are_narrowed() -> None:
    assert reduce_feature_count_randomly(torch.ones(2, suspecting.WIDEST + 1), GENERATOR).shape == (
        2,
        suspecting.WIDEST,
    )


def draw_sample(count: int, moved: float, labels: list[str], seed: int) -> DataShiftSample:
    generator = torch.Generator().manual_seed(seed)
    names = [labels[i % len(labels)] for i in range(count)]
    own = torch.tensor([[3.0 * (name == "dog")] for name in names])
    seen = torch.randn(count, 6, generator=generator) + own + moved
    return DataShiftSample(seen, torch.rand(count, 2, generator=generator), names)


def test_a_shift_of_known_classes_is_told_by_class() -> None:
    new, earlier = (
        draw_sample(120, 1.0, ["cat", "dog"], 1),
        draw_sample(120, 0.0, ["cat", "dog"], 2),
    )
    found = measure_data_shift(
        new, earlier, by_class=True, generator=torch.Generator().manual_seed(0)
    )
    assert found is not None and found["of"] == "known classes"
    assert found["p"] == pytest.approx(2 / (PERMUTATIONS + 1))
    assert [c["label"] for c in found["per_class"]] == ["cat", "dog"]
    assert min(c["outside"] for c in found["per_class"]) > 0.2


def test_a_shift_of_light_alone_is_told() -> None:
    dark = draw_sample(80, 0.0, ["cat", "dog"], 5)
    bright = draw_sample(80, 0.0, ["cat", "dog"], 6)._replace(light=dark.light + 0.3)
    found = measure_data_shift(
        bright, dark, by_class=True, generator=torch.Generator().manual_seed(0)
    )
    assert found is not None and found["p_light"] < 0.01 < found["p_features"]
    (said,) = build_data_findings({"shift": found}, 80, 0)
    assert said["holds"] and "in brightness or contrast" in said["text"]


def test_light_is_mean_and_deviation_of_each_channel() -> None:
    images = torch.randint(0, 256, (3, 4, 4, 3), generator=GENERATOR, dtype=torch.uint8)
    pixels = images.numpy().astype(np.float64) / 255
    wanted = np.concatenate([pixels.mean((1, 2)), pixels.reshape(3, 16, 3).std(1, ddof=1)], 1)
    assert compute_image_channel_statistics(images).numpy() == pytest.approx(wanted, abs=1e-6)


def test_other_shares_of_the_same_classes_are_no_shift() -> None:
    many = draw_sample(200, 0.0, ["cat", "cat", "cat", "cat", "dog"], 3)
    found = measure_data_shift(
        many,
        draw_sample(200, 0.0, ["cat", "dog"], 4),
        by_class=True,
        generator=torch.Generator().manual_seed(0),
    )
    assert found is not None and found["p"] > 0.05
    assert max(c["outside"] for c in found["per_class"]) < 0.2


def test_other_classes_are_compared_as_a_whole_and_nobody_is_warned() -> None:
    found = measure_data_shift(
        draw_sample(60, 0, ["elk"], 1),
        draw_sample(60, 0, ["cat"], 2),
        by_class=True,
        generator=GENERATOR,
    )
    assert found is not None and (found["of"], found["per_class"]) == ("all images", [])
    assert build_data_findings({"shift": {**found, "p": 0.001}}, 60, 0) == []


def test_too_few_images_tell_nothing() -> None:
    few = draw_sample(19, 0, ["cat"], 1)
    assert measure_data_shift(few, few, by_class=True, generator=GENERATOR) is None


def test_a_finding_holds_above_its_share_and_is_told_below_it() -> None:
    suspect = {"index": 3, "path": "train/a.png", "label": "cat", "suggested": "dog", "score": 99.0}
    for count, holds in ((3, False), (4, True)):
        report = {"suspects": [suspect], "suspects_count": count, "examined": 100}
        (found,) = build_data_findings(report, 100, 0)
        assert (found["kind"], found["holds"]) == ("suspects", holds)
        assert "train/a.png: cat, which looks like dog" in found["text"]
        assert bool(join_findings_that_hold_job({"findings": [found]})) == holds


def test_a_recipe_that_holds_ends_the_job_before_it_learns(tmp_path) -> None:
    bench = Bench(tmp_path)
    spec = bench.spec(1, None, data_report="hold") | {"data": {"conflicts": 10}}
    events: list[dict] = []
    with pytest.raises(BatchHeldSignal, match="10 images are under two classes, pixel for pixel"):
        run_learn_task(spec, events.append)
    assert [e["phase"] for e in events if e["event"] == "phase"][-1] == "inspect"
    assert find_data_report(events)["findings"][0]["holds"]
    json.dumps(events)


def find_data_report(events: list[dict]) -> dict:
    (event,) = [e for e in events if e["event"] == "data"]
    return event["report"]
