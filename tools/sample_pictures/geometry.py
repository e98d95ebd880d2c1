"""Signed distances of simple solids, and the noise that colours them.

A solid is a function from points [N, 3] to distances [N]: negative inside, positive outside. The
ground is the plane y = 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[Any]
Values = npt.NDArray[Any]
Solid = Callable[[Points], Values]
Rng = np.random.Generator
LATTICE = 16


class SmoothNoise:
    """Smooth 3-D noise for textures: values in [0, 1] interpolated on a repeating lattice.

    Args:
        rng: source of the values.
    """

    def __init__(self, rng: Rng) -> None:
        self._values = rng.random((LATTICE, LATTICE, LATTICE)).astype(np.float32)

    def __call__(self, points: Points, scale: float | tuple[float, float, float]) -> Values:
        """Return the noise at points, of which `scale` lattice steps are one unit long."""
        at = points * np.asarray(scale, np.float32) + 100.0
        cell = np.floor(at).astype(np.int64)
        part = at - cell
        part = part * part * (3 - 2 * part)
        low, high = cell % LATTICE, (cell + 1) % LATTICE
        value = np.zeros(len(points), np.float32)
        for corner in np.ndindex(2, 2, 2):
            weight = np.ones(len(points), np.float32)
            lattice_index = []
            for axis, is_high in enumerate(corner):
                weight *= part[:, axis] if is_high else 1 - part[:, axis]
                lattice_index.append((high if is_high else low)[:, axis])
            value += weight * self._values[tuple(lattice_index)]
        return value

    def sum_noise_octaves(self, points: Points, scale: float) -> Values:
        """Sum three octaves of noise at points, in [0, 1]."""
        layers = [(0.6, 1.0), (0.27, 2.3), (0.13, 5.1)]
        return sum_arrays([share * self(points, scale * factor) for share, factor in layers])


def convert_to_float32_array(values: npt.ArrayLike) -> Points:
    """Convert numbers to a float32 array."""
    return np.asarray(values, np.float32)


def sum_arrays(values: list[Values]) -> Values:
    """Sum arrays of equal shape."""
    return convert_to_float32_array(np.sum(values, axis=0))


def compute_vector_lengths(vectors: npt.NDArray[Any]) -> Values:
    """Return the lengths of vectors [N, D]."""
    return convert_to_float32_array(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))


def join_distances_smoothly(a: Values, b: Values, width: float) -> Values:
    """Signed distance to the union of two solids, blended over a seam of some width."""
    share = np.clip(0.5 + 0.5 * (b - a) / width, 0, 1)
    return convert_to_float32_array(b * (1 - share) + a * share - width * share * (1 - share))


def compute_distances_to_sphere(
    p: Points, centre: tuple[float, float, float], radius: float
) -> Values:
    """Signed distance from points to a sphere."""
    return compute_vector_lengths(p - convert_to_float32_array(centre)) - radius


def compute_distances_to_ellipsoid(
    p: Points, centre: tuple[float, float, float], radii: tuple[float, float, float]
) -> Values:
    """Estimate the signed distance from points to an ellipsoid."""
    scaled = (p - convert_to_float32_array(centre)) / convert_to_float32_array(radii)
    inner = compute_vector_lengths(scaled)
    outer = np.maximum(compute_vector_lengths(scaled / convert_to_float32_array(radii)), 1e-6)
    return convert_to_float32_array(inner * (inner - 1) / outer)


def compute_distances_to_rod(
    p: Points, a: tuple[float, float, float], b: tuple[float, float, float], radius: float
) -> Values:
    """Signed distance from points to a rod with round ends."""
    start, axis = (
        convert_to_float32_array(a),
        convert_to_float32_array(b) - convert_to_float32_array(a),
    )
    share = np.clip((p - start) @ axis / (axis @ axis), 0, 1)
    return compute_vector_lengths(p - start - share[:, None] * axis) - radius


def compute_distances_to_round_box(
    p: Points, centre: tuple[float, float, float], half: tuple[float, float, float], edge: float
) -> Values:
    """Signed distance from points to a box with rounded edges."""
    beyond = np.abs(p - convert_to_float32_array(centre)) - convert_to_float32_array(half) + edge
    return convert_to_float32_array(
        compute_vector_lengths(np.maximum(beyond, 0)) + np.minimum(beyond.max(1), 0) - edge
    )


def compute_signed_distances_to_torus(
    p: Points, centre: tuple[float, float, float], ring: float, tube: float, axis: int = 1
) -> Values:
    """Signed distance from points to a torus around one of the three axes."""
    moved = p - convert_to_float32_array(centre)
    flat = compute_vector_lengths(np.delete(moved, axis, 1)) - ring
    return convert_to_float32_array(np.hypot(flat, moved[:, axis]) - tube)


def compute_distances_to_cone_stump(
    p: Points, height: float, low: float, high: float, edge: float = 0.0
) -> Values:
    """Signed distance from points to an upright truncated cone that stands on the ground.

    Args:
        low, high: radius at the ground and at the top.
        edge: radius of its round edges.
    """
    low, high, height = low - edge, high - edge, height - 2 * edge
    x, y = np.hypot(p[:, 0], p[:, 2]), p[:, 1] - edge
    half = height / 2
    y = y - half
    cap_x = x - np.minimum(x, np.where(y < 0, low, high))
    cap_y = np.abs(y) - half
    slant = convert_to_float32_array((high - low, height))
    along = np.clip(((x - low) * slant[0] + (y + half) * slant[1]) / (slant @ slant), 0, 1)
    side_x, side_y = x - low - along * slant[0], y + half - along * slant[1]
    inside = np.where((side_x < 0) & (cap_y < 0), -1.0, 1.0)
    nearest = np.minimum(cap_x**2 + cap_y**2, side_x**2 + side_y**2)
    return convert_to_float32_array(inside * np.sqrt(nearest) - edge)
