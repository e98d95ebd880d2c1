"""Features of small networks that really learn: what training wrecks has collapsed, and what it
keeps has not.
"""

from itertools import combinations
from pathlib import Path

import pytest
from streams import Bench, Learned

from core.contract.features import AncestorFeatureAccuracy
from core.contract.jobs.job_result import LearnJobResult
from core.lineage.feature_collapse import compute_feature_accuracy_drop, has_feature_collapse
from core.publishing.features import (
    AncestorWithFeatureAccuracy,
    compare_feature_accuracy_with_ancestor,
)

TEN = (("ant", "bee"), ("cat", "dog"), ("elk", "fox"), ("gnu", "hen"), ("ibex", "jay"))
SMALL = {"name": "mlp", "hidden": [64]}
LEARNS = {"method": {"name": "er", "buffer": 200}, "epochs": 5, "batch_size": 16}


def make_digits_bench(folder: Path) -> Bench:
    bench = Bench(folder, "class", SMALL, size=8, classes=TEN)
    bench.show_digits()
    return bench


def parse_result(learned: Learned) -> LearnJobResult:
    return LearnJobResult.from_json(learned.result)


def compare_with_ancestor(version: Learned, ancestor: Learned) -> AncestorFeatureAccuracy:
    """Compare the feature accuracy of a version with that of an ancestor."""
    older = parse_result(ancestor)
    assert older.baseline_lda is not None
    number = ancestor.spec["task"]["number"]
    known = AncestorWithFeatureAccuracy(
        number, older.classes, older.baseline_lda.tasks, is_good=True
    )
    found = compare_feature_accuracy_with_ancestor("class", parse_result(version), known)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, list[Learned]]:
    """Five batches of two digits, learned with replay."""
    bench = make_digits_bench(tmp_path_factory.mktemp("line"))
    return bench, bench.learn_tasks(5, **LEARNS)


def test_versions_that_learn_normally_have_not_collapsed(line: tuple[Bench, list[Learned]]) -> None:
    for ancestor, version in combinations(line[1], 2):
        found = compare_with_ancestor(version, ancestor)
        assert not has_feature_collapse(found), found
        assert found["images"] == found["images_before"]


def test_a_fine_tuning_with_an_absurd_rate_has_collapsed(line: tuple[Bench, list[Learned]]) -> None:
    bench, learned = line
    wrecked = bench.learn_task(
        5, learned[3], **{**LEARNS, "method": "finetune", "optimizer": {"lr": 300.0, "clip": 1.0}}
    )
    for ancestor in learned[:4]:
        found = compare_with_ancestor(wrecked, ancestor)
        assert has_feature_collapse(found) and compute_feature_accuracy_drop(found) > 0.3, found
