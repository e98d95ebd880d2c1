"""Twelve kinds of things: each function returns one whose shape and colours `rng` chooses."""

from collections.abc import Callable

import numpy as np

from tools.sample_pictures.geometry import (
    Points,
    Rng,
    SmoothNoise,
    Values,
    compute_distances_to_cone_stump,
    compute_distances_to_ellipsoid,
    compute_distances_to_rod,
    compute_distances_to_round_box,
    compute_distances_to_sphere,
    compute_signed_distances_to_torus,
    compute_vector_lengths,
    convert_to_float32_array,
    join_distances_smoothly,
)
from tools.sample_pictures.scene import ColouredSolid, Colours

WHITE, BROWN, LEAF = (0.93, 0.92, 0.88), (0.3, 0.2, 0.1), (0.2, 0.42, 0.12)
Colour = tuple[float, float, float]
PAINTS: tuple[Colour, ...] = (
    (0.75, 0.16, 0.14), (0.13, 0.3, 0.62), (0.93, 0.9, 0.84), (0.12, 0.45, 0.36),
    (0.9, 0.66, 0.13), (0.2, 0.2, 0.24), (0.5, 0.25, 0.5), (0.4, 0.65, 0.78),
)  # fmt: skip
"""Colours of things that people make."""


def _choose_random_paint(rng: Rng) -> Points:
    colour = convert_to_float32_array(PAINTS[rng.integers(len(PAINTS))])
    return np.clip(colour * (1 + rng.uniform(-0.12, 0.12, 3)), 0.03, 0.97).astype(np.float32)


def _vary_colour(rng: Rng, colour: Colour, spread: float = 0.12) -> Points:
    return np.clip(
        convert_to_float32_array(colour) * (1 + rng.uniform(-spread, spread, 3)), 0, 1
    ).astype(np.float32)


def _mix_colours(a: Points, b: Points, share: Values) -> Colours:
    """Blend two colours by shares [N] of the second."""
    return convert_to_float32_array(a + np.clip(share, 0, 1)[:, None] * (b - a))


def _copy_with_colour_where(
    colours: Colours, where: np.ndarray, colour: Points | Colour
) -> Colours:
    return np.where(where[:, None], convert_to_float32_array(colour), colours).astype(np.float32)


def _find_inward_facing_normals(p: Points, n: Points) -> np.ndarray:
    """Return which surface normals point towards the solid's vertical axis."""
    return np.asarray(np.einsum("ij,ij->i", n[:, ::2], p[:, ::2]) < -0.01)


def _compute_distances_to_dimpled_fruit(p: Points, flat: float, top: float) -> Values:
    """Estimate the signed distance to a fruit with dimples at top and bottom."""
    q = (p - convert_to_float32_array((0, flat, 0))) / convert_to_float32_array((1, flat, 1))
    centre_distance = np.maximum(compute_vector_lengths(q), 1e-6)
    up = np.arccos(np.clip(q[:, 1] / centre_distance, -1, 1))
    radius = 1 - top * np.exp(-((up / 0.34) ** 2)) - 0.12 * np.exp(-(((np.pi - up) / 0.3) ** 2))
    return ((centre_distance - radius) * min(flat, 1)).astype(np.float32)


def _make_apple_solid(rng: Rng) -> ColouredSolid:
    noise, flat = SmoothNoise(rng), rng.uniform(0.84, 0.98)
    skins: tuple[tuple[Colour, Colour], ...] = (
        ((0.66, 0.06, 0.07), (0.85, 0.6, 0.2)), ((0.5, 0.66, 0.13), (0.72, 0.78, 0.3)),
        ((0.76, 0.18, 0.1), (0.86, 0.72, 0.28)), ((0.82, 0.7, 0.2), (0.7, 0.25, 0.12)),
    )  # fmt: skip
    first, second = (_vary_colour(rng, one) for one in skins[rng.integers(len(skins))])
    lean, has_leaf = rng.uniform(-0.25, 0.25, 2), rng.random() < 0.5
    top = 2 * flat - 0.3
    stem = (float(lean[0]), top + 0.52, float(lean[1]))

    def compute_distances_to_stalk(p: Points) -> Values:
        return compute_distances_to_rod(p, (0, top, 0), stem, 0.045)

    def compute_distances_to_leaf(p: Points) -> Values:
        return compute_distances_to_ellipsoid(
            p, (stem[0] + 0.27, top + 0.34, stem[2]), (0.33, 0.04, 0.15)
        )

    def compute_distances_to_apple(p: Points) -> Values:
        distances = np.minimum(
            _compute_distances_to_dimpled_fruit(p, flat, 0.32), compute_distances_to_stalk(p)
        )
        return np.minimum(distances, compute_distances_to_leaf(p)) if has_leaf else distances

    def compute_apple_colours(p: Points, _: Points) -> Colours:
        turn = np.arctan2(p[:, 2], p[:, 0])[:, None] * convert_to_float32_array((3.0, 0, 0)) + p
        share = noise.sum_noise_octaves(turn.astype(np.float32), 1.4) + 0.35 * (
            p[:, 1] / (2 * flat) - 0.5
        )
        skin = _mix_colours(first, second, (share - 0.42) * 3)
        skin = _copy_with_colour_where(skin, compute_distances_to_stalk(p) < 0.02, BROWN)
        return (
            _copy_with_colour_where(skin, compute_distances_to_leaf(p) < 0.02, LEAF)
            if has_leaf
            else skin
        )

    return ColouredSolid(
        compute_distances_to_apple, compute_apple_colours, 2 * flat, 1.45, shine=0.5, caution=0.6
    )


def _make_orange_solid(rng: Rng) -> ColouredSolid:
    noise, flat = SmoothNoise(rng), rng.uniform(0.9, 1.02)
    skin = _vary_colour(rng, (0.95, 0.5, 0.07), 0.08)

    def compute_distances_to_orange(p: Points) -> Values:
        return _compute_distances_to_dimpled_fruit(p, flat, 0.05) + 0.012 * noise(p, 14.0)

    def compute_orange_colours(p: Points, _: Points) -> Colours:
        plain = _mix_colours(skin, skin * 0.78, noise(p, 14.0))
        return _copy_with_colour_where(
            plain, np.hypot(p[:, 0], p[:, 2]) + 3 * (p[:, 1] < flat) < 0.13, (0.35, 0.4, 0.15)
        )

    return ColouredSolid(
        compute_distances_to_orange, compute_orange_colours, 2 * flat, 1.2, shine=0.35, caution=0.6
    )


def _make_pear_solid(rng: Rng) -> ColouredSolid:
    noise, neck, width = SmoothNoise(rng), rng.uniform(1.75, 2.15), rng.uniform(0.46, 0.58)
    skin, blush = _vary_colour(rng, (0.68, 0.7, 0.22)), _vary_colour(rng, (0.7, 0.42, 0.16))
    lean = float(rng.uniform(-0.2, 0.2))

    def compute_distances_to_stalk(p: Points) -> Values:
        return compute_distances_to_rod(p, (0, neck + 0.3, 0), (lean, neck + 0.95, 0.1), 0.05)

    def compute_distances_to_pear(p: Points) -> Values:
        body = join_distances_smoothly(
            compute_distances_to_sphere(p, (0, 0.9, 0), 0.92),
            compute_distances_to_sphere(p, (0, neck, 0), width),
            0.75,
        )
        return np.minimum(body, compute_distances_to_stalk(p))

    def compute_pear_colours(p: Points, _: Points) -> Colours:
        plain = _mix_colours(skin, blush, 2 * noise.sum_noise_octaves(p, 1.1) - 0.75)
        plain = _copy_with_colour_where(plain, noise(p, 17.0) > 0.86, (0.45, 0.35, 0.14))
        return _copy_with_colour_where(plain, compute_distances_to_stalk(p) < 0.02, BROWN)

    return ColouredSolid(
        compute_distances_to_pear, compute_pear_colours, neck + 0.8, 1.75, shine=0.3, caution=0.8
    )


def _make_egg_solid(rng: Rng) -> ColouredSolid:
    noise, long = SmoothNoise(rng), rng.uniform(1.22, 1.42)
    shell = _vary_colour(
        rng, ((0.95, 0.92, 0.86), (0.85, 0.66, 0.48), (0.78, 0.86, 0.8))[rng.integers(3)], 0.05
    )
    speck = rng.uniform(0.86, 1.1)
    is_up = rng.random() < 0.4

    def compute_distances_to_egg(p: Points) -> Values:
        q = p if is_up else np.stack((p[:, 2], p[:, 0] + long, p[:, 1] - 1), 1)
        taper = 1 + 0.17 * (q[:, 1:2] / long - 1)
        squeezed = q * np.concatenate((taper, np.ones_like(taper), taper), 1)
        return compute_distances_to_ellipsoid(
            squeezed.astype(np.float32), (0, long, 0), (1, long, 1)
        )

    def compute_egg_colours(p: Points, _: Points) -> Colours:
        plain = _mix_colours(shell, shell * 0.9, noise.sum_noise_octaves(p, 3.0))
        return _copy_with_colour_where(
            plain, noise(p, 9.0) > speck, convert_to_float32_array(shell * 0.5)
        )

    height = 2 * long if is_up else 2.0
    return ColouredSolid(
        compute_distances_to_egg, compute_egg_colours, height, 1.5, shine=0.2, caution=0.7
    )


def _make_carrot_solid(rng: Rng) -> ColouredSolid:
    noise, long, wide = SmoothNoise(rng), rng.uniform(3.0, 3.8), rng.uniform(0.4, 0.56)
    skin = _vary_colour(rng, (0.92, 0.42, 0.08), 0.1)
    leaves = [
        (float(side), float(up), float(reach))
        for side, up, reach in zip(
            rng.uniform(-0.75, 0.75, 6),
            rng.uniform(0.1, 0.8, 6),
            rng.uniform(0.7, 1.25, 6),
            strict=True,
        )
    ]
    start = -long / 2

    def compute_distances_to_root(p: Points) -> Values:
        upright = np.stack((p[:, 2], p[:, 0] - start, p[:, 1] - wide), 1)
        rings = 0.025 * np.sin(upright[:, 1] * 11 + 5 * noise(p, 1.5))
        return convert_to_float32_array(
            compute_distances_to_cone_stump(upright, long, wide, 0.07, 0.06) + rings
        )

    def compute_distances_to_leaves(p: Points) -> Values:
        stalks = [
            compute_distances_to_rod(p, (start + 0.1, wide, 0), (start - reach, up, side), 0.06)
            for side, up, reach in leaves
        ]
        tufts = [
            compute_distances_to_ellipsoid(p, (start - reach, up + 0.05, side), (0.34, 0.1, 0.17))
            for side, up, reach in leaves
        ]
        return convert_to_float32_array(np.minimum.reduce([*stalks, *tufts]))

    def compute_distances_to_carrot(p: Points) -> Values:
        return np.minimum(compute_distances_to_root(p), compute_distances_to_leaves(p))

    def compute_carrot_colours(p: Points, _: Points) -> Colours:
        rings = noise(p, (9.0, 1.2, 1.2))
        plain = _mix_colours(skin, skin * 0.72, 2 * rings - 0.8)
        leaf = _mix_colours(
            convert_to_float32_array(LEAF),
            convert_to_float32_array((0.32, 0.55, 0.2)),
            noise(p, 4.0),
        )
        return np.where(
            (compute_distances_to_leaves(p) < compute_distances_to_root(p))[:, None], leaf, plain
        ).astype(np.float32)

    return ColouredSolid(
        compute_distances_to_carrot,
        compute_carrot_colours,
        2 * wide,
        long / 2 + 1.0,
        shine=0.2,
        caution=0.7,
    )


def _make_mushroom_solid(rng: Rng) -> ColouredSolid:
    noise, tall = SmoothNoise(rng), rng.uniform(1.1, 1.8)
    wide, high = rng.uniform(0.95, 1.3), rng.uniform(0.5, 0.85)
    kinds: tuple[Colour, ...] = (
        (0.72, 0.12, 0.08),
        (0.55, 0.36, 0.2),
        (0.88, 0.82, 0.72),
        (0.45, 0.28, 0.18),
    )
    kind = int(rng.integers(len(kinds)))
    skin, thick = _vary_colour(rng, kinds[kind]), rng.uniform(0.26, 0.4)

    def compute_distances_to_cap(p: Points) -> Values:
        dome = compute_distances_to_ellipsoid(p, (0, tall, 0), (wide, high, wide))
        return convert_to_float32_array(np.maximum(dome, tall - 0.1 - p[:, 1]))

    def compute_distances_to_stem(p: Points) -> Values:
        return compute_distances_to_cone_stump(p, tall + 0.1, thick * 1.25, thick * 0.85, 0.05)

    def compute_distances_to_mushroom(p: Points) -> Values:
        return join_distances_smoothly(
            compute_distances_to_cap(p), compute_distances_to_stem(p), 0.12
        )

    def compute_mushroom_colours(p: Points, n: Points) -> Colours:
        top = _mix_colours(skin, skin * 0.75, noise.sum_noise_octaves(p, 2.0))
        if kind == 0:
            top = _copy_with_colour_where(top, noise(p, 3.6) > 0.68, WHITE)
        pale = _mix_colours(
            convert_to_float32_array((0.9, 0.86, 0.76)),
            convert_to_float32_array((0.72, 0.65, 0.52)),
            noise(p, (9.0, 1.0, 9.0)),
        )
        is_top = (p[:, 1] > tall - 0.08) & (n[:, 1] > -0.5)
        return np.where(is_top[:, None], top, pale).astype(np.float32)

    return ColouredSolid(
        compute_distances_to_mushroom,
        compute_mushroom_colours,
        tall + high,
        1.5,
        shine=0.25,
        caution=0.7,
    )


def _make_doughnut_solid(rng: Rng) -> ColouredSolid:
    noise, tube = SmoothNoise(rng), rng.uniform(0.4, 0.5)
    dough = _vary_colour(rng, (0.76, 0.5, 0.24), 0.08)
    icings: tuple[Colour, ...] = (
        (0.92, 0.5, 0.62),
        (0.32, 0.17, 0.09),
        (0.95, 0.93, 0.9),
        (0.6, 0.75, 0.9),
    )
    icing = _vary_colour(rng, icings[rng.integers(len(icings))], 0.06)
    has_sprinkles = rng.random() < 0.7

    def compute_distances_to_doughnut(p: Points) -> Values:
        return compute_signed_distances_to_torus(p, (0, tube, 0), 1.0, tube)

    def compute_doughnut_colours(p: Points, _: Points) -> Colours:
        edge = tube * (0.95 + 0.5 * (noise(p * convert_to_float32_array((1, 0, 1)), 3.0) - 0.5))
        plain = _mix_colours(dough, dough * 0.8, noise.sum_noise_octaves(p, 3.0))
        is_iced = p[:, 1] > edge
        plain = _copy_with_colour_where(plain, is_iced, icing)
        if has_sprinkles:
            for paint, level in zip(PAINTS[:5], (0.83, 0.84, 0.83, 0.84, 0.83), strict=True):
                shifted = (p + convert_to_float32_array(paint) * 7).astype(np.float32)
                plain = _copy_with_colour_where(
                    plain, is_iced & (noise(shifted, 7.5) > level), paint
                )
        return plain

    return ColouredSolid(
        compute_distances_to_doughnut, compute_doughnut_colours, 2 * tube, 1.55, shine=0.4
    )


def _make_mug_solid(rng: Rng) -> ColouredSolid:
    tall, wide = rng.uniform(1.7, 2.3), rng.uniform(0.72, 0.95)
    paint, band = _choose_random_paint(rng), _choose_random_paint(rng)
    inside = _vary_colour(rng, WHITE, 0.04) if rng.random() < 0.7 else paint
    has_band, drink = rng.random() < 0.5, rng.uniform(0.5, 0.85) * tall
    band_from, band_to = sorted(rng.uniform(0.15, 0.85, 2) * tall)
    is_full = rng.random() < 0.6
    liquid = _vary_colour(rng, (0.24, 0.13, 0.07) if rng.random() < 0.6 else (0.6, 0.3, 0.1))

    def compute_distances_to_mug(p: Points) -> Values:
        cup = compute_distances_to_cone_stump(p, tall, wide * 0.92, wide, 0.06)
        hollow = compute_distances_to_cone_stump(
            p - convert_to_float32_array((0, drink if is_full else 0.15, 0)),
            tall,
            wide * 0.84,
            wide * 0.9,
        )
        handle = compute_signed_distances_to_torus(
            p, (wide + 0.1, tall * 0.52, 0), tall * 0.27, 0.1, axis=2
        )
        handle = np.maximum(handle, wide * 0.9 - p[:, 0])
        return np.maximum(join_distances_smoothly(cup, handle, 0.08), -hollow)

    def compute_mug_colours(p: Points, n: Points) -> Colours:
        plain = np.broadcast_to(paint, p.shape).astype(np.float32)
        radius = np.hypot(p[:, 0], p[:, 2])
        if has_band:
            plain = _copy_with_colour_where(
                plain, (p[:, 1] > band_from) & (p[:, 1] < band_to) & (radius < wide + 0.04), band
            )
        is_drink = (radius < wide * 0.93) & (n[:, 1] > 0.8) & (p[:, 1] < drink + 0.05)
        plain = _copy_with_colour_where(
            plain, _find_inward_facing_normals(p, n) & (radius < wide * 0.96) | is_drink, inside
        )
        return _copy_with_colour_where(plain, is_drink, liquid) if is_full else plain

    return ColouredSolid(
        compute_distances_to_mug, compute_mug_colours, tall, 1.65, shine=0.55, caution=0.8
    )


def _make_bowl_solid(rng: Rng) -> ColouredSolid:
    noise, wide, tall = SmoothNoise(rng), rng.uniform(1.2, 1.5), rng.uniform(0.85, 1.15)
    paint, rim = _choose_random_paint(rng), _choose_random_paint(rng)
    is_glazed = rng.random() < 0.5
    inside = (
        _vary_colour(rng, WHITE, 0.04)
        if rng.random() < 0.5
        else convert_to_float32_array(paint * 0.9)
    )

    def compute_distances_to_bowl(p: Points) -> Values:
        outer = compute_distances_to_ellipsoid(p, (0, tall, 0), (wide, tall, wide))
        inner = compute_distances_to_ellipsoid(
            p, (0, tall, 0), (wide - 0.13, tall - 0.16, wide - 0.13)
        )
        foot = compute_distances_to_cone_stump(p, 0.22, wide * 0.45, wide * 0.42, 0.03)
        shell = np.maximum(np.maximum(outer, -inner), p[:, 1] - tall)
        return convert_to_float32_array(np.minimum(shell, np.maximum(foot, -inner)))

    def compute_bowl_colours(p: Points, n: Points) -> Colours:
        plain = np.broadcast_to(paint, p.shape).astype(np.float32)
        if is_glazed:
            plain = _mix_colours(
                paint, convert_to_float32_array(paint * 0.6), noise.sum_noise_octaves(p, 2.0)
            )
        plain = _copy_with_colour_where(
            plain, _find_inward_facing_normals(p, n) | (n[:, 1] > 0.9), inside
        )
        return _copy_with_colour_where(plain, p[:, 1] > tall - 0.08, rim)

    return ColouredSolid(
        compute_distances_to_bowl, compute_bowl_colours, tall, wide + 0.1, shine=0.5, caution=0.6
    )


def _make_bottle_solid(rng: Rng) -> ColouredSolid:
    wide, tall, neck = rng.uniform(0.5, 0.68), rng.uniform(1.7, 2.2), rng.uniform(0.8, 1.2)
    glasses: tuple[Colour, ...] = (
        (0.1, 0.3, 0.12),
        (0.35, 0.18, 0.06),
        (0.62, 0.75, 0.75),
        (0.12, 0.22, 0.4),
    )
    glass, label, cap = (
        _vary_colour(rng, glasses[rng.integers(len(glasses))]),
        _vary_colour(rng, WHITE, 0.08),
        _choose_random_paint(rng),
    )
    stripe = _choose_random_paint(rng)
    low, high = 0.25 * tall, rng.uniform(0.7, 0.9) * tall

    def compute_distances_to_bottle(p: Points) -> Values:
        body = compute_distances_to_cone_stump(p, tall, wide, wide, 0.12)
        top = compute_distances_to_cone_stump(
            p - convert_to_float32_array((0, tall - 0.15, 0)), neck, wide * 0.42, wide * 0.3, 0.04
        )
        lip = compute_distances_to_cone_stump(
            p - convert_to_float32_array((0, tall + neck - 0.4, 0)),
            0.25,
            wide * 0.38,
            wide * 0.38,
            0.03,
        )
        return np.minimum(join_distances_smoothly(body, top, 0.45), lip)

    def compute_bottle_colours(p: Points, n: Points) -> Colours:
        plain = _mix_colours(
            glass, convert_to_float32_array(glass * 0.6 + 0.25), np.clip(n[:, 1] + 0.2, 0, 0.5)
        )
        is_label = (p[:, 1] > low) & (p[:, 1] < high)
        plain = _copy_with_colour_where(plain, is_label, label)
        plain = _copy_with_colour_where(
            plain, is_label & (np.abs(p[:, 1] - low - 0.3 * (high - low)) < 0.09), stripe
        )
        return _copy_with_colour_where(plain, p[:, 1] > tall + neck - 0.4, cap)

    height = tall + neck - 0.15
    return ColouredSolid(
        compute_distances_to_bottle,
        compute_bottle_colours,
        height,
        height / 2 + 0.25,
        shine=0.9,
        caution=0.8,
    )


def _make_book_solid(rng: Rng) -> ColouredSolid:
    half = (
        float(rng.uniform(0.85, 1.05)),
        float(rng.uniform(0.12, 0.32)),
        float(rng.uniform(1.15, 1.45)),
    )
    cover, title = _choose_random_paint(rng), _choose_random_paint(rng)
    plate, is_lined = rng.uniform(0.25, 0.6, 2), rng.random() < 0.5

    def compute_distances_to_pages(p: Points) -> Values:
        return compute_distances_to_round_box(
            p, (0.05, half[1], 0), (half[0] - 0.03, half[1] - 0.05, half[2] - 0.06), 0.01
        )

    def compute_distances_to_book_cover(p: Points) -> Values:
        lower = compute_distances_to_round_box(p, (0, 0.03, 0), (half[0], 0.03, half[2]), 0.02)
        upper = compute_distances_to_round_box(
            p, (0, 2 * half[1] - 0.03, 0), (half[0], 0.03, half[2]), 0.02
        )
        spine = compute_distances_to_round_box(
            p, (-half[0], half[1], 0), (0.05, half[1], half[2]), 0.04
        )
        return np.minimum(np.minimum(lower, upper), spine)

    def compute_distances_to_book(p: Points) -> Values:
        return np.minimum(compute_distances_to_pages(p), compute_distances_to_book_cover(p))

    def compute_book_colours(p: Points, n: Points) -> Colours:
        plain = np.broadcast_to(cover, p.shape).astype(np.float32)
        is_on = (np.abs(p[:, 0]) < plate[0] * half[0]) & (
            np.abs(p[:, 2] - 0.3) < plate[1] * half[2]
        )
        plain = _copy_with_colour_where(plain, is_on & (n[:, 1] > 0.8), title)
        if is_lined:
            plain = _copy_with_colour_where(
                plain, (n[:, 1] > 0.8) & (np.abs(np.abs(p[:, 2]) - half[2] + 0.15) < 0.04), title
            )
        leaves = _mix_colours(
            convert_to_float32_array((0.93, 0.9, 0.8)),
            convert_to_float32_array((0.75, 0.7, 0.58)),
            (p[:, 1] * 40) % 1,
        )
        return np.where(
            (compute_distances_to_pages(p) < compute_distances_to_book_cover(p))[:, None],
            leaves,
            plain,
        ).astype(np.float32)

    return ColouredSolid(
        compute_distances_to_book, compute_book_colours, 2 * half[1], 1.65, shine=0.15
    )


def _make_die_solid(rng: Rng) -> ColouredSolid:
    paint = _choose_random_paint(rng)
    pip = convert_to_float32_array(WHITE if paint.mean() < 0.6 else (0.08, 0.08, 0.1))
    edge, dot = float(rng.uniform(0.12, 0.3)), rng.uniform(0.17, 0.22)
    faces = rng.permutation(6) + 1
    corner, row = [(a, b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)], [(-0.5, 0.0), (0.5, 0.0)]
    spots = {
        1: [(0.0, 0.0)], 2: corner[::3], 3: [*corner[::3], (0.0, 0.0)], 4: corner,
        5: [*corner, (0.0, 0.0)], 6: [*corner, *row],
    }  # fmt: skip

    def compute_distances_to_die(p: Points) -> Values:
        return compute_distances_to_round_box(p, (0, 1, 0), (1, 1, 1), edge)

    def compute_die_colours(p: Points, _: Points) -> Colours:
        plain = np.broadcast_to(paint, p.shape).astype(np.float32)
        q = p - convert_to_float32_array((0, 1, 0))
        for number, (axis, sign) in zip(
            faces, [(a, s) for a in range(3) for s in (-1, 1)], strict=True
        ):
            flat = np.delete(q, axis, 1)
            is_face = q[:, axis] * sign > 0.96
            for spot in spots[int(number)]:
                plain = _copy_with_colour_where(
                    plain,
                    is_face & (compute_vector_lengths(flat - convert_to_float32_array(spot)) < dot),
                    pip,
                )
        return plain

    return ColouredSolid(compute_distances_to_die, compute_die_colours, 2.0, 1.8, shine=0.5)


THINGS: dict[str, Callable[[Rng], ColouredSolid]] = {
    "apple": _make_apple_solid,
    "book": _make_book_solid,
    "bottle": _make_bottle_solid,
    "bowl": _make_bowl_solid,
    "carrot": _make_carrot_solid,
    "die": _make_die_solid,
    "doughnut": _make_doughnut_solid,
    "egg": _make_egg_solid,
    "mug": _make_mug_solid,
    "mushroom": _make_mushroom_solid,
    "orange": _make_orange_solid,
    "pear": _make_pear_solid,
}
"""Class → function that makes one of it."""
