"""RandAugment of a batch on its device: two of fifteen operations per image.

Each is applied with probability 0.5. Cubuk et al. 2020, arXiv 1909.13719. Operations, ranges and
the magnitude N(9, 0.5) of 10 are those of "rand-m9-mstd0.5-inc1", the common setting for vision
transformers. Pixels from outside the image are grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.data.transfer import copy_tensor_to_device

DRAWS = 2
COLUMNS = 4 * DRAWS
"""Uniform random numbers per image.

Each draw has four: the operation, its application, its strength and its direction.
"""
MEAN, DEVIATION = 0.9, 0.05
APPLIED = 0.5
GREY = 128.0
# Brightness of red, green and blue by ITU-R BT.601, as in Pillow's conversion to grey.
LUMA = (0.299, 0.587, 0.114)

Row = tuple[Tensor, Tensor, Tensor]
"""A row of an affine map: two factors and a shift, each [n]."""
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""An operation (x, level, sign) → new x of any values.

x: float [n, C, S, S], whole numbers 0 … 255. level: [n], 0 … 1. sign: [n], ±1.
"""


def apply_rand_augment(images: Tensor, table: Tensor) -> Tensor:
    """Augment a batch of images uint8 [B, S, S, C] by RandAugment.

    table: uniform [0, 1), [B, COLUMNS], on the CPU.
    """
    x = images.permute(0, 3, 1, 2).float()
    names = list(OPERATIONS)
    for draw in table.reshape(-1, DRAWS, 4).unbind(1):
        chosen = (draw[:, 0] * len(names)).long()
        # Normal numbers from the table's uniform ones, so that the table alone decides.
        level = (MEAN + DEVIATION * torch.special.ndtri(draw[:, 2])).clamp(0, 1)
        sign = torch.where(draw[:, 3] < 0.5, -1.0, 1.0)
        # the last index: not applied
        chosen = torch.where(draw[:, 1] < APPLIED, chosen, len(names))
        order = chosen.argsort(stable=True)
        # On the CPU, where the table is: the host loops over operations without waiting for the
        # device.
        counts = chosen.bincount(minlength=len(names) + 1).tolist()
        # One copy to the device for all three; rows are exact in float64.
        placed = copy_tensor_to_device(
            torch.stack([order.double(), level[order], sign[order].double()]), x.device
        )
        rows, level, sign = placed[0].long(), placed[1].float(), placed[2].float()
        begin = 0
        for name, count in zip(names, counts[:-1], strict=True):
            part = slice(begin, begin + count)
            begin += count
            if count:
                at = rows[part]
                x[at] = OPERATIONS[name](x[at], level[part], sign[part]).clamp(0, 255).floor()
    return x.to(torch.uint8).permute(0, 2, 3, 1)


def _stretch_contrast_to_full_range(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Stretch each channel's values to 0 … 255 (RandAugment's AutoContrast)."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    # A channel of one value has nothing to stretch.
    return torch.where(high > low, (x - low) * 255 / (high - low).clamp_min(1), x)


def _equalize_histograms(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Equalise each channel's histogram, as in Pillow (RandAugment's Equalize)."""
    values = x.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, device=x.device).scatter_add_(
        2, values, torch.ones_like(x.flatten(2))
    )
    # As in Pillow's equalize, the greatest value that occurs does not count for the step.
    last = counts.gather(2, values.amax(2, keepdim=True))
    step = ((counts.sum(2, keepdim=True) - last) / 255).floor()
    before = counts.cumsum(2) - counts
    # Where the step is 0 the table is not used, but the division must not give NaN.
    table = ((before + (step / 2).floor()) / step.clamp_min(1)).floor().clamp(0, 255)
    return torch.where(step > 0, table.gather(2, values), x.flatten(2)).view_as(x)


def _invert_pixel_values(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return 255 - x


def _posterize_images(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Keep only the upper 4 to 0 bits of pixel values (RandAugment's Posterize)."""
    unit = torch.exp2(8 - (4 - (4 * level).floor()))[:, None, None, None]
    return (x / unit).floor() * unit


def _solarize_images(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Invert pixel values from a threshold on; at level 1 all of them (RandAugment's Solarize)."""
    return torch.where(x >= (256 - (256 * level).floor())[:, None, None, None], 255 - x, x)


def _add_to_dark_pixels(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Add 110 × `level` to pixel values below 128 (RandAugment's SolarizeAdd)."""
    return torch.where(x < 128, x + (110 * level).floor()[:, None, None, None], x)


def _adjust_color(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend_images_by_level(x, _convert_images_to_luminance(x), level, sign)


def _adjust_contrast(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend_images_by_level(
        x, _convert_images_to_luminance(x).mean((2, 3), keepdim=True), level, sign
    )


def _adjust_brightness(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend_images_by_level(x, torch.zeros_like(x), level, sign)


def _adjust_sharpness(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Sharpen or smooth images (RandAugment's Sharpness): blend with a weighted 3 x 3 mean."""
    # As in Pillow's filter SMOOTH, which leaves the pixels at the border as they are.
    kernel = torch.ones(x.shape[1], 1, 3, 3, device=x.device)
    kernel[:, :, 1, 1] = 5
    smooth = x.clone()
    smooth[:, :, 1:-1, 1:-1] = functional.conv2d(x, kernel / 13, groups=x.shape[1]).round()
    return _blend_images_by_level(x, smooth, level, sign)


def _rotate_images(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Rotate images by `level` × 30 degrees, in the direction of `sign`."""
    angle, zero = level * sign * math.radians(30), torch.zeros_like(level)
    cos, sin = angle.cos(), angle.sin()
    return _warp_images_affinely(x, (cos, -sin, zero), (sin, cos, zero))


def _shear_images_horizontally(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _warp_images_affinely(x, (one, 0.3 * level * sign, zero), (zero, one, zero))


def _shear_images_vertically(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _warp_images_affinely(x, (one, zero, zero), (0.3 * level * sign, one, zero))


def _translate_images_horizontally(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Translate images horizontally by up to 0.45 of their size."""
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _warp_images_affinely(x, (one, zero, 0.45 * level * sign), (zero, one, zero))


def _translate_images_vertically(x: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _warp_images_affinely(x, (one, zero, zero), (zero, one, 0.45 * level * sign))


OPERATIONS: dict[str, Operation] = {
    "auto-contrast": _stretch_contrast_to_full_range,
    "equalize": _equalize_histograms,
    "invert": _invert_pixel_values,
    "rotate": _rotate_images,
    "posterize": _posterize_images,
    "solarize": _solarize_images,
    "solarize-add": _add_to_dark_pixels,
    "color": _adjust_color,
    "contrast": _adjust_contrast,
    "brightness": _adjust_brightness,
    "sharpness": _adjust_sharpness,
    "shear-x": _shear_images_horizontally,
    "shear-y": _shear_images_vertically,
    "translate-x": _translate_images_horizontally,
    "translate-y": _translate_images_vertically,
}


def _convert_images_to_luminance(x: Tensor) -> Tensor:
    """Convert images to their luminance [n, 1, S, S], in whole numbers."""
    # Luminance is defined for red, green and blue alone.
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True).floor()
    return (x * x.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True).floor()


def _blend_images_by_level(x: Tensor, other: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Blend images with other ones, or extrapolate away from them, by a factor of 1 ± 0.9 level."""
    factor = (1 + 0.9 * level * sign)[:, None, None, None]
    return factor * x + (1 - factor) * other


def _warp_images_affinely(x: Tensor, columns: Row, rows: Row) -> Tensor:
    """Warp images affinely: pixel (u, v) comes from (a u + b v + dx, c u + d v + dy), bilinear.

    Args:
        columns: a, b and dx, the last in shares of the image, each [n].
        rows: c, d and dy.
    """
    # The grid reaches from -1 to 1: a share of the image counts twice.
    matrix = [
        torch.stack([along, across, 2 * shift], 1) for along, across, shift in (columns, rows)
    ]
    # Around grey: what comes in from outside is 0 here, and grey after the shift back.
    grid = functional.affine_grid(torch.stack(matrix, 1), list(x.shape), align_corners=False)
    return functional.grid_sample(x - GREY, grid, align_corners=False) + GREY
