"""Shared by the tests of curvature: toy networks and slow measures in `kit/toys.py`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parent / "kit"))

import toys


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def network() -> nn.Sequential:
    return toys.build_cnn()


@pytest.fixture
def x() -> Tensor:
    return toys.draw_images()
