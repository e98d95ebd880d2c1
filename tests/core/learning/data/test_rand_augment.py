"""RandAugment on batches: each operation against torchvision's on one image, and what the table
decides.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from core.learning.data.augment import Augmentation, draw_epoch_random_numbers
from core.learning.data.rand_augment import COLUMNS, OPERATIONS, apply_rand_augment
from core.learning.torchvision_import import import_torchvision_models

LEVELS = torch.tensor([0.0, 0.5, 0.9, 1.0])
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])


@cache
def load_transforms() -> Any:
    """Return the functions of torchvision, whose import takes seconds that only a process of these
    tests pays.
    """
    import_torchvision_models()
    from torchvision.transforms import functional

    return functional


def move_image(image: Tensor, angle: float, x: float, y: float) -> Tensor:
    size = image.shape[-1]
    return load_transforms().affine(
        image.float(),
        angle,
        [x * size, y * size],
        1.0,
        [0.0, 0.0],
        load_transforms().InterpolationMode.BILINEAR,
        [128.0],
    )


ORACLES: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "auto-contrast": lambda x, level, sign: load_transforms().autocontrast(x),
    "equalize": lambda x, level, sign: load_transforms().equalize(x),
    "invert": lambda x, level, sign: load_transforms().invert(x),
    "posterize": lambda x, level, sign: load_transforms().posterize(x, 4 - int(level * 4)),
    "solarize": lambda x, level, sign: (
        load_transforms().solarize(x, 256 - int(level * 256)) if level else x
    ),
    "color": lambda x, level, sign: load_transforms().adjust_saturation(x, 1 + 0.9 * level * sign),
    "contrast": lambda x, level, sign: load_transforms().adjust_contrast(x, 1 + 0.9 * level * sign),
    "brightness": lambda x, level, sign: load_transforms().adjust_brightness(
        x, 1 + 0.9 * level * sign
    ),
    "sharpness": lambda x, level, sign: load_transforms().adjust_sharpness(
        x, 1 + 0.9 * level * sign
    ),
}
MOVES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "rotate": lambda x, by: move_image(x, -30 * by, 0, 0),
    "translate-x": lambda x, by: move_image(x, 0, -0.45 * by, 0),
    "translate-y": lambda x, by: move_image(x, 0, 0, -0.45 * by),
}


@pytest.fixture
def images() -> Tensor:
    """Four smooth images uint8 [4, 3, 16, 16] of different ranges."""
    generator = torch.Generator().manual_seed(0)
    coarse = (
        torch.rand(4, 3, 4, 4, generator=generator)
        * torch.tensor([255, 200, 120, 60])[:, None, None, None]
    )
    return torch.nn.functional.interpolate(coarse, 16, mode="bilinear").to(torch.uint8)


@pytest.mark.parametrize("name", ORACLES)
def test_an_operation_is_torchvisions_for_each_image_with_its_own_level(
    name: str, images: Tensor
) -> None:
    found = OPERATIONS[name](images.float(), LEVELS, SIGNS).clamp(0, 255).floor()
    for at, image in enumerate(images):
        wanted = ORACLES[name](image, float(LEVELS[at]), float(SIGNS[at])).float().floor()
        assert (found[at] - wanted).abs().max() <= (2 if name == "color" else 1)


@pytest.mark.parametrize("name", MOVES)
def test_a_move_is_torchvisions_where_the_image_is_seen_and_grey_elsewhere(
    name: str, images: Tensor
) -> None:
    found = OPERATIONS[name](images.float(), LEVELS, SIGNS)
    seen = OPERATIONS[name](torch.full_like(found, 255), LEVELS, SIGNS)
    for at, image in enumerate(images):
        wanted = MOVES[name](image, float(LEVELS[at] * SIGNS[at]))
        inside, outside = seen[at] > 254.9, seen[at] < 128.1
        assert inside.float().mean() > 0.4 and bool(outside.any()) == (at > 0)
        assert (found[at] - wanted)[inside].abs().max() <= 1
        assert (found[at][outside] - 128).abs().sum() < 0.1 * outside.sum() + 1e-3


def test_solarize_add_lightens_the_dark_half_alone(images: Tensor) -> None:
    found = OPERATIONS["solarize-add"](images.float(), LEVELS, SIGNS)
    dark = images < 128
    assert torch.equal(found[~dark], images[~dark].float())
    added = (found - images)[1][dark[1]]
    assert added.unique().tolist() == [55.0]


def test_a_shear_moves_lines_further_the_further_they_are_from_the_centre() -> None:
    upright = torch.zeros(1, 1, 33, 33)
    upright[0, 0, :, 16] = 255
    one = torch.ones(1)
    for found in (
        OPERATIONS["shear-x"](upright, one, one),
        OPERATIONS["shear-y"](upright.transpose(2, 3), one, one).transpose(2, 3),
    ):
        assert [int(found[0, 0, row].sub(128).argmax()) for row in (6, 16, 26)] == [19, 16, 13]


def test_the_same_table_gives_the_same_images_and_an_image_depends_on_its_own_row_alone(
    images: Tensor,
) -> None:
    pictures = images.permute(0, 2, 3, 1)
    table = torch.rand(4, COLUMNS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = apply_rand_augment(pictures, table)
    alone = torch.cat([apply_rand_augment(pictures[i : i + 1], table[i : i + 1]) for i in range(4)])
    assert torch.equal(together, alone) and together.dtype == torch.uint8
    assert not torch.equal(together, pictures)


def test_all_operations_come_up_equally_often_and_a_quarter_of_images_is_left_alone() -> None:
    n = 4000
    ramp = torch.arange(8 * 8 * 3).reshape(1, 8, 8, 3).mul(7).remainder(251).to(torch.uint8)
    table = draw_epoch_random_numbers(0, 1, 0, n, COLUMNS)[:, 1:]
    found = apply_rand_augment(ramp.expand(n, -1, -1, -1), table)
    same = (found == ramp).flatten(1).all(1).float().mean()
    assert 0.22 < same < 0.31  # 1/4, and a few operations that change nothing in this image
    drawn = (table[:, [0, 4]] * len(OPERATIONS)).long().flatten().bincount()
    assert drawn.numel() == len(OPERATIONS) and drawn.min() > 0.8 * drawn.float().mean()


@pytest.mark.parametrize("channels", [1, 3])
def test_the_recipes_augmentation_shifts_flips_and_then_changes(channels: int) -> None:
    augment = Augmentation("rand-augment", 16)
    images = torch.randint(0, 255, (5, 16, 16, channels), dtype=torch.uint8)
    table = draw_epoch_random_numbers(0, 1, 0, 5, augment.columns)[:, 1:]
    table[:, [4, 8]] = 0.9  # no operation is applied
    index = torch.arange(5)
    assert torch.equal(
        augment(images, index, table), Augmentation("shift-flip", 16)(images, index, table[:, :3])
    )
    table[:, 4] = 0.1
    assert augment(images, index, table).shape == images.shape
