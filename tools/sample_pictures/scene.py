"""A picture of one solid on a table: rays, light, shadow, and what a camera adds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.sample_pictures.geometry import (
    Points,
    Rng,
    SmoothNoise,
    Solid,
    Values,
    compute_vector_lengths,
    convert_to_float32_array,
)

SIDE = 128
"""Pixels a side of a picture."""
SAMPLES = 2
"""Rays of a pixel along each side."""
STEPS, SHADOW_STEPS = 72, 28
NEAR_ENOUGH = 0.002
Colours = npt.NDArray[Any]


@dataclass(frozen=True)
class ColouredSolid:
    """A solid to render: its signed-distance function, colours and size.

    Attributes:
        colour: function from points and normals [N, 3] to RGB [N, 3] in [0, 1].
        height: of its top above the ground.
        reach: radius of a sphere around its middle that holds it.
        shine: strength of highlights, in [0, 1].
        caution: share of a distance that a ray may go; below 1 where distances are estimates.
    """

    solid: Solid
    colour: Callable[[Points, Points], Colours]
    height: float
    reach: float
    shine: float = 0.3
    caution: float = 0.9


@dataclass(frozen=True)
class SceneView:
    """Camera position, light and table of a rendered picture."""

    eye: Points
    target: Points
    focal: float
    light: Points
    warmth: Points
    table: Callable[[Points], Colours]
    wall: Points


def render_solid_from_random_view(thing: ColouredSolid, rng: Rng) -> npt.NDArray[np.uint8]:
    """Render a solid from a random view as a picture uint8 [128, 128, 3]."""
    view = _choose_camera_view(thing, rng)
    rays = _compute_ray_directions(view)
    colours = _compute_ray_colours(thing, view, rays)
    samples = colours.reshape(SIDE, SAMPLES, SIDE, SAMPLES, 3).mean((1, 3))
    return _convert_to_camera_picture(samples, rng)


def _choose_camera_view(thing: ColouredSolid, rng: Rng) -> SceneView:
    turn, rise = rng.uniform(0, 2 * np.pi), np.radians(rng.uniform(14, 48))
    away = thing.reach * rng.uniform(2.3, 3.5)
    middle = convert_to_float32_array((0, thing.height / 2, 0))
    eye = middle + away * convert_to_float32_array(
        (np.cos(rise) * np.cos(turn), np.sin(rise), np.cos(rise) * np.sin(turn))
    )
    target = middle + thing.reach * rng.uniform(-0.22, 0.22, 3).astype(np.float32)
    side = turn + rng.uniform(0.5, 2.2) * rng.choice((-1, 1))
    high = np.radians(rng.uniform(32, 68))
    light = convert_to_float32_array(
        (np.cos(high) * np.cos(side), np.sin(high), np.cos(high) * np.sin(side))
    )
    warmth = convert_to_float32_array((1 + rng.uniform(-0.06, 0.1), 1, 1 - rng.uniform(-0.06, 0.1)))
    wall = convert_to_float32_array(rng.uniform(0.35, 0.85) * (1 + rng.uniform(-0.12, 0.12, 3)))
    return SceneView(
        eye, target, rng.uniform(1.6, 1.9), light, warmth, _choose_table_surface(rng), wall
    )


def _choose_table_surface(rng: Rng) -> Callable[[Points], Colours]:
    """Choose a random table surface; return its colours as a function of points."""
    noise, kind = SmoothNoise(rng), rng.choice(("wood", "cloth", "stone", "plain"))
    base = convert_to_float32_array(rng.uniform(0.35, 0.85) * (1 + rng.uniform(-0.2, 0.2, 3)))
    if kind == "wood":
        base = convert_to_float32_array(
            rng.uniform(0.55, 1.0) * convert_to_float32_array((0.72, 0.5, 0.3))
        )
    other = np.clip(base * rng.uniform(0.55, 0.85), 0, 1)
    angle, width = rng.uniform(0, np.pi), rng.uniform(0.25, 0.6)

    def compute_table_surface_shade(p: Points) -> Values:
        x = np.cos(angle) * p[:, 0] + np.sin(angle) * p[:, 2]
        z = np.cos(angle) * p[:, 2] - np.sin(angle) * p[:, 0]
        turned = np.stack((x, np.zeros_like(x), z), 1).astype(np.float32)
        if kind == "wood":
            rings = noise(turned, (0.5, 1.0, 5.0)) * 6
            return 0.35 * (rings % 1) + 0.5 * noise(turned, (2.0, 1.0, 40.0))
        if kind == "cloth":
            checks = (np.floor(x / width) + np.floor(z / width)) % 2
            return convert_to_float32_array(0.75 * checks + 0.25 * noise(turned, 30.0))
        return noise.sum_noise_octaves(turned, 2.5) * (1.0 if kind == "stone" else 0.15)

    def compute_surface_colour(p: Points) -> Colours:
        share = compute_table_surface_shade(p)[:, None]
        return convert_to_float32_array(base * (1 - share) + other * share)

    return compute_surface_colour


def _compute_ray_directions(view: SceneView) -> Points:
    """Return the directions [N, 3] of the camera's rays through all samples."""
    ahead = (view.target - view.eye) / np.linalg.norm(view.target - view.eye)
    right = np.cross(ahead, (0, 1, 0))
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    coordinates = (np.arange(SIDE * SAMPLES) + 0.5) / (SIDE * SAMPLES) * 2 - 1
    x, y = np.meshgrid(coordinates, -coordinates)
    rays = x[..., None] * right + y[..., None] * up + view.focal * ahead
    rays = rays.reshape(-1, 3).astype(np.float32)
    return convert_to_float32_array(rays / compute_vector_lengths(rays)[:, None])


def _compute_ray_colours(thing: ColouredSolid, view: SceneView, rays: Points) -> Colours:
    middle = convert_to_float32_array((0, thing.height / 2, 0))
    hit = _find_ray_distances(thing, view.eye, rays, middle)
    with np.errstate(divide="ignore"):
        to_table = np.where(rays[:, 1] < -1e-4, -view.eye[1] / rays[:, 1], np.inf)
    is_thing = np.isfinite(hit) & (hit < to_table)
    is_table = ~is_thing & (to_table < 14 * thing.reach)
    fade = np.clip((rays[:, 1:2] + 0.3) * 1.2, 0, 1)
    colours = np.broadcast_to(view.wall * (0.75 + 0.35 * fade), rays.shape).astype(np.float32)
    points = view.eye + rays[is_thing] * hit[is_thing, None]
    if len(points):
        normals = _compute_surface_normals(thing.solid, points)
        plain = thing.colour(points, normals)
        colours[is_thing] = _compute_colours_under_light(
            thing, view, points, normals, plain, -rays[is_thing]
        )
    points = view.eye + rays[is_table] * to_table[is_table, None].astype(np.float32)
    if len(points):
        normals = np.broadcast_to(convert_to_float32_array((0, 1, 0)), points.shape)
        lit = _compute_colours_under_light(
            thing, view, points, normals, view.table(points / thing.reach), None
        )
        # The table fades into the wall far away.
        wall_share = np.clip(compute_vector_lengths(points) / (9 * thing.reach), 0, 1)[:, None] ** 2
        colours[is_table] = lit * (1 - wall_share) + colours[is_table] * wall_share
    return colours


def _find_ray_distances(thing: ColouredSolid, eye: Points, rays: Points, middle: Points) -> Values:
    """Return the distance along each ray at which it hits the solid; infinity if it misses."""
    closest = rays @ (middle - eye)
    missed = compute_vector_lengths(eye + rays * closest[:, None] - middle) > thing.reach
    at = np.maximum(closest - thing.reach, 0.01).astype(np.float32)
    end = closest + thing.reach
    hit_distances = np.full(len(rays), np.inf, np.float32)
    active = np.flatnonzero(~missed)
    for _ in range(STEPS):
        if not len(active):
            break
        distance = thing.solid(eye + rays[active] * at[active, None])
        is_hit = distance < NEAR_ENOUGH
        hit_distances[active[is_hit]] = at[active[is_hit]]
        at[active] += np.maximum(distance, NEAR_ENOUGH) * thing.caution
        active = active[~is_hit & (at[active] < end[active])]
    return hit_distances


def _compute_surface_normals(solid: Solid, points: Points) -> Points:
    step = 0.004
    slopes = [
        solid(points + offset) - solid(points - offset)
        for offset in np.eye(3, dtype=np.float32) * step
    ]
    normals = np.stack(slopes, 1)
    return convert_to_float32_array(
        normals / np.maximum(compute_vector_lengths(normals), 1e-9)[:, None]
    )


def _compute_colours_under_light(
    thing: ColouredSolid,
    view: SceneView,
    points: Points,
    normals: Points,
    plain: Colours,
    back: Points | None,
) -> Colours:
    """Return the colours of lit points; `back` points to the camera where the surface shines."""
    facing = np.clip(normals @ view.light, 0, 1)
    lit = facing.copy()
    is_facing_light = facing > 0
    lit[is_facing_light] *= _compute_light_reaching_points(
        thing, points[is_facing_light] + 0.02 * normals[is_facing_light], view.light
    )
    # Corners that see less of the sky are darker.
    reach = 0.25 * thing.reach
    open_sky = np.clip(thing.solid(points + reach * normals) / reach, 0, 1)
    sky = (0.5 + 0.5 * normals[:, 1]) * (0.45 + 0.55 * open_sky)
    colours = plain * (0.95 * lit[:, None] * view.warmth + 0.42 * sky[:, None])
    if back is not None:
        between = view.light + back
        between /= compute_vector_lengths(between)[:, None]
        gleam = np.clip(np.einsum("ij,ij->i", normals, between), 0, 1) ** 48
        colours = colours + (thing.shine * gleam * lit)[:, None]
    return convert_to_float32_array(colours)


def _compute_light_reaching_points(thing: ColouredSolid, points: Points, light: Points) -> Values:
    """Return the share of light that reaches surface points, with soft shadows."""
    share = np.ones(len(points), np.float32)
    at = np.full(len(points), 0.03 * thing.reach, np.float32)
    active = np.arange(len(points))
    for _ in range(SHADOW_STEPS):
        if not len(active):
            break
        distance = thing.solid(points[active] + light * at[active, None])
        share[active] = np.minimum(share[active], np.clip(9 * distance / at[active], 0, 1))
        at[active] += np.clip(distance * thing.caution, 0.03 * thing.reach, thing.reach)
        active = active[(share[active] > 0.01) & (at[active] < 4 * thing.reach)]
    return share


def _convert_to_camera_picture(samples: Colours, rng: Rng) -> npt.NDArray[np.uint8]:
    """Convert rendered light to a picture as a camera takes it, with exposure, vignette and noise."""
    coordinates = np.linspace(-1, 1, SIDE)
    corner = 1 - 0.12 * (coordinates[:, None] ** 2 + coordinates[None] ** 2)
    light = np.clip(samples * rng.uniform(0.8, 1.12) * corner[..., None], 0, 1) ** (1 / 1.25)
    light = light + rng.normal(0, rng.uniform(0.004, 0.016), light.shape)
    return np.rint(255 * np.clip(light, 0, 1)).astype(np.uint8)
