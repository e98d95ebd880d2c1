"""Fixtures: scikit-learn's digits as idx files, plans over them, and the command line on them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.grid import ExperimentRun, expand_plan_to_runs
from bench.experiment.plan import ExperimentPlan, read_plan_file

sys.path.append(str(Path(__file__).parent / "kit"))

from experiments import Runner, Server, write_idx, write_plan


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for --data.

    It has `digits`, with 1,000 training and 797 test images of 8 × 8 pixels.
    """
    folder = tmp_path_factory.mktemp("data")
    (folder / "digits").mkdir()
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * 15).astype(np.uint8)
    for part, rows in (("train", slice(1000)), ("t10k", slice(1000, None))):
        write_idx(folder / "digits" / f"{part}-images-idx3-ubyte.gz", images[rows])
        write_idx(folder / "digits" / f"{part}-labels-idx1-ubyte.gz", labels[rows].astype(np.uint8))
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., ExperimentPlan]:
    """Return a function that makes a plan over the digits with additional TOML lines."""
    return lambda extra: read_plan_file(write_plan(tmp_path / "plan.toml", extra))


@pytest.fixture
def runs(
    plan: Callable[..., ExperimentPlan], data: Path, tmp_path: Path
) -> Callable[..., list[ExperimentRun]]:
    """Return a function that makes the runs of a plan with these lines."""
    return lambda extra, device="cpu": expand_plan_to_runs(
        plan(extra), ExperimentDatasetCache(data, tmp_path / "cache"), device
    )[1]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def runner(server: Server, data: Path, tmp_path: Path) -> Runner:
    return Runner(server, data, tmp_path)
