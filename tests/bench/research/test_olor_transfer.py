"""The program's grid, targets, front and table; the learning itself is `bench.experiment`'s."""

import json
import tomllib
from pathlib import Path

import numpy as np

from bench.experiment.__main__ import PLANS
from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.plan import ExperimentPlan, PlannedImages
from bench.research.olor_transfer import (
    OlorTransferRow,
    _expand_methods_over_olor_grid,
    _shrink_plan_in_place,
    _write_mnist_archive_in_rgb,
    is_pareto_optimal,
    render_olor_transfer_table,
)


def make_row(
    method: str, target: float, source: float, network: str = "vit", first: float | None = None
) -> OlorTransferRow:
    return OlorTransferRow(
        network, method, first, first, target, source, learned=0.5, kept=0.25, runs=2
    )


def test_every_pair_of_strength_and_exponent_is_a_method_beside_full_tuning_and_the_probe() -> None:
    document = tomllib.loads((PLANS / "olor-transfer.toml").read_text())
    found = _expand_methods_over_olor_grid(
        document["methods"], ["resnet20"], [(0.005, 1.0), (0.5, 4.0)]
    )
    names = ["full", "linear-probe", "olor-0.005-1", "olor-0.5-4"]
    assert [method["name"] for method in found] == [f"resnet20-{name}" for name in names]
    assert found[-1]["recipe"]["optimizer"]["olor"] == {"iota1": 0.5, "gamma": 4.0}
    assert found[-1]["recipe"]["optimizer"]["lr"] == 0.01
    _shrink_plan_in_place(document)
    document |= {"methods": found, "seeds": [0]}
    assert (
        ExperimentPlan.model_validate_json(json.dumps(document)).bases[0].architecture["width"] == 8
    )


def test_the_front_has_what_no_other_row_of_the_network_beats() -> None:
    best, worse, other = make_row("a", 0.8, 0.3), make_row("b", 0.8, 0.2), make_row("c", 0.7, 0.4)
    elsewhere = make_row("d", 0.1, 0.1, "resnet20")
    found = [best, worse, other, elsewhere]
    assert [is_pareto_optimal(each, found) for each in found] == [True, False, True, True]


def test_the_table_has_the_sums_of_rollback_and_what_the_first_fold_lost() -> None:
    lines = render_olor_transfer_table(
        [make_row("olor-0.5-2", 0.8, 0.3, first=12.345), make_row("full", 0.9, 0.2)]
    ).splitlines()
    assert lines[2] == "| vit | olor-0.5-2 | 12.35 | 12.35 | 80.0 | 30.0 | 50.0 → 25.0 | 2 | * |"
    assert lines[3] == "| vit | full |  |  | 90.0 | 20.0 | 50.0 → 25.0 | 2 | * |"


def test_the_far_target_is_digits_in_colour_that_plans_can_read(tmp_path: Path) -> None:
    labels = np.arange(20, dtype=np.uint8) % 10
    pixels = np.repeat(labels * 20, 28 * 28).reshape(20, 28, 28)
    (tmp_path / "mnist").mkdir()
    for part in ("train", "t10k"):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            shape = np.array(values.shape, ">i4").tobytes()
            content = bytes([0, 0, 8, values.ndim]) + shape + values.tobytes()
            (tmp_path / "mnist" / f"{part}-{kind}-ubyte").write_bytes(content)
    folder = _write_mnist_archive_in_rgb(tmp_path / "mnist", tmp_path / "far")
    assert _write_mnist_archive_in_rgb(tmp_path / "mnist", tmp_path / "far") == folder
    images = PlannedImages(path=str(folder))
    files = ExperimentDatasetCache(tmp_path, tmp_path / "cache")
    assert files.get_image_shape(images) == {"size": 32, "channels": 3}
    assert files.decode_experiment_data_set(images).names == tuple("0123456789")
